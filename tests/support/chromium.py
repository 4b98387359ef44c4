"""A headless Chromium, told what to do over its DevTools pipe: sizes, colour schemes, scripts, screenshots.

The pipe needs no further package and no port. What a test evaluates is not bound by the page's Content-Security-Policy,
so the page is looked at as it is.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from PIL import Image

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ANSWER_S_MAX = 60.0


class Chromium:
    """With one page open."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None, "Chromium is not installed"
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        # Chromium reads descriptor 3 and writes descriptor 4. (sh knows descriptors of one digit only.)
        script = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        ]
        self._process = subprocess.Popen(
            ["bash", "-c", script, CHROMIUM, *flags, "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._read = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        pages = [
            each for each in self._ask("Target.getTargets")["targetInfos"] if each["type"] == "page"
        ]
        target = (
            pages[0]["targetId"]
            if pages
            else self._ask("Target.createTarget", url="about:blank")["targetId"]
        )
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._ask(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._session = None
        with contextlib.suppress(OSError, AssertionError):
            self._ask("Browser.close")
        os.close(self._to)
        os.close(self._from)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def open(self, page: Path, width: int, scheme: str, *, scripts: bool = True) -> None:
        """`scheme`: light or dark."""
        self._ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=False,
        )
        self._ask(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self._ask("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.events.clear()
        self._ask("Page.navigate", url=page.as_uri())
        self._until(lambda: any(each["method"] == "Page.loadEventFired" for each in self.events))

    def value_of(self, expression: str) -> Any:
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def requested(self) -> list[str]:
        """Every address that the page asked for, itself included."""
        return [
            each["params"]["request"]["url"]
            for each in self.events
            if each["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """What the browser's console has: errors of scripts, and what the policy refused."""
        return [
            json.dumps(each["params"])
            for each in self.events
            if each["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")
        ]

    def picture(self) -> Image.Image:
        """The whole page, not only what a window shows."""
        size = self._ask("Page.getLayoutMetrics")["cssContentSize"]
        answer = self._ask(
            "Page.captureScreenshot",
            format="png",
            captureBeyondViewport=True,
            clip={"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1},
        )
        return Image.open(io.BytesIO(base64.b64decode(answer["data"]))).convert("RGB")

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        answers: list[dict[str, Any]] = []

        def answered() -> bool:
            answers.extend(each for each in self.events if each.get("id") == number)
            return bool(answers)

        self._until(answered)
        self.events[:] = [each for each in self.events if "method" in each]
        assert "error" not in answers[0], f"{method}: {answers[0]}"
        result: dict[str, Any] = answers[0]["result"]
        return result

    def _until(self, condition: Any) -> None:
        deadline = time.monotonic() + ANSWER_S_MAX
        while not condition():
            left = deadline - time.monotonic()
            assert left > 0, "Chromium does not answer"
            if select.select([self._from], [], [], left)[0]:
                data = os.read(self._from, 1 << 16)
                assert data, "Chromium ended"
                *messages, self._read = (self._read + data).split(b"\0")
                self.events.extend(json.loads(each) for each in messages)
