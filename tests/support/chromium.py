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
        self.resize(width, 800, scheme)
        self._ask("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.visit(page.as_uri())

    def resize(self, width: int, height: int, scheme: str = "light", *, scale: float = 1) -> None:
        self._ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )
        self._ask(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )

    def visit(self, url: str) -> None:
        self.events.clear()
        self._ask("Page.navigate", url=url)
        self._until(lambda: any(each["method"] == "Page.loadEventFired" for each in self.events))

    @property
    def renderers(self) -> list[int]:
        """The processes in which pages run."""
        parents = {}
        for each in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parents[int(each.name)] = int((each / "stat").read_text().rpartition(")")[2].split()[1])  # fmt: skip
        ours = {self._process.pid}
        while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
            ours |= more
        return sorted(pid for pid in ours if b"--type=renderer" in Path(f"/proc/{pid}/cmdline").read_bytes())  # fmt: skip

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Any command of the DevTools protocol."""
        return self._ask(method, **parameters)

    def value_of(self, expression: str) -> Any:
        answer = self._ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, expression: str, timeout: float = 10.0) -> Any:
        """The first true value of this expression. The page looks itself, ten times a second."""
        script = f"""new Promise((done) => {{
            const ends = performance.now() + {timeout * 1000};
            const look = () => {{
                let value = null;
                try {{ value = ({expression}); }} catch {{}}
                if (value || performance.now() > ends) done(value instanceof Node ? true : value);
                else setTimeout(look, 100);
            }};
            look();
        }})"""
        value = self.value_of(script)
        assert value, f"not within {timeout} s: {expression}; the page says: {self.text()[:2000]}"
        return value

    def wait_for_text(self, text: str, timeout: float = 10.0) -> None:
        self.wait_for(f"document.body.innerText.includes({json.dumps(text)})", timeout)

    def text(self) -> str:
        """What people read on the page."""
        return str(self.value_of("document.body.innerText"))

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of the first element that can be seen, once it stands still and nothing covers it."""
        at = self.wait_for(
            f"""(() => {{
                const found = [...document.querySelectorAll({json.dumps(selector)})].find((e) => e.checkVisibility());
                if (!found) return null;
                const middle = () => {{
                    const box = found.getBoundingClientRect();
                    return [box.left + box.width / 2, box.top + box.height / 2];
                }};
                let [x, y] = middle();
                if (y < 60 || y > innerHeight - 60) {{
                    found.scrollIntoView({{ block: "center", behavior: "instant" }});
                    [x, y] = middle();
                }}
                const stood = window.lastClick?.[0] === x && window.lastClick?.[1] === y;
                window.lastClick = [x, y];
                return stood && found.contains(document.elementFromPoint(x, y)) ? [x, y] : null;
            }})()"""
        )
        self.mouse("mouseMoved", *at)
        self.mouse("mousePressed", *at)
        self.mouse("mouseReleased", *at)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self._ask(
            "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1, **more
        )

    def press(self, key: str) -> None:
        """A key by its name: ArrowDown, Enter, a."""
        codes = {"Enter": 13, "Tab": 9, "Escape": 27, "End": 35, "Home": 36}
        codes |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        code = codes.get(key, ord(key[0].upper()))
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        kind = "keyDown" if text else "rawKeyDown"
        self._ask(
            "Input.dispatchKeyEvent", type=kind, key=key, text=text, windowsVirtualKeyCode=code
        )
        self._ask("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def write(self, text: str) -> None:
        """Into what has the focus."""
        self._ask("Input.insertText", text=text)

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

    def traced(self) -> list[dict[str, Any]]:
        """Ends a trace: its events."""
        self._ask("Tracing.end")
        self._until(
            lambda: any(each["method"] == "Tracing.tracingComplete" for each in self.events)
        )
        return [
            each
            for told in self.events
            if told["method"] == "Tracing.dataCollected"
            for each in told["params"]["value"]
        ]

    def window(self) -> Image.Image:
        """What a window shows."""
        answer = self._ask("Page.captureScreenshot", format="png")
        return Image.open(io.BytesIO(base64.b64decode(answer["data"]))).convert("RGB")

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
