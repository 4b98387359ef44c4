"""docs/RIGHTS.md has the table of `security.needs`. To write it again:

.venv/bin/python tests/test_rights_page.py
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ottla.security.needs import ON_BROKER, ON_CONTROLLER, Need, Needs, RequestForm
from ottla.security.operations import ResourceType
from ottla.wire.apis import APIS, PRIVATE_APIS, ApiKey

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "RIGHTS.md"
LETTERS = {
    ResourceType.TOPIC: "T",
    ResourceType.GROUP: "G",
    ResourceType.CLUSTER: "C",
    ResourceType.TRANSACTIONAL_ID: "X",
    ResourceType.DELEGATION_TOKEN: "token",
    ResourceType.USER: "user",
}


def _need(need: Need) -> str:
    return " or ".join(
        f"{LETTERS[right.resource_type]}:{right.operation.name}"
        + (" of some topic" if right.of_some else "")
        for right in need.any_of
    )


def _denied(form: RequestForm) -> str:
    if form.left_out:
        return "left out"
    return ", ".join(dict.fromkeys(str(int(need.denied)) for need in form.needs))


def _table(needs: Mapping[int, Needs], served: Mapping[int, str]) -> list[str]:
    lines = ["| API | when | needs | denied |", "|---|---|---|---|"]
    for key, name in sorted(served.items(), key=lambda each: each[1]):
        for form in needs[key]:
            wanted = ", and ".join(_need(need) for need in form.needs)
            lines.append(f"| {name} | {form.when} | {wanted} | {_denied(form)} |")
    free = sorted(name for key, name in served.items() if not needs[key])
    return [*lines, "", f"Nothing is needed here for: {', '.join(free)}."]


def tables() -> str:
    brokers = {int(api.key): api.name for api in APIS.values() if api.on_broker}
    controllers = {int(api.key): api.name for api in APIS.values() if api.on_controller}
    forwarded = {int(api.key) for api in APIS.values() if api.forwarded}
    passed_on = forwarded - {ApiKey.INCREMENTAL_ALTER_CONFIGS}
    here = {key: name for key, name in brokers.items() if key not in passed_on} | PRIVATE_APIS
    return "\n".join(
        [
            "## On brokers",
            "",
            *_table(ON_BROKER, here),
            "",
            "## On controllers",
            "",
            "Also for what a broker passes on: the client's principal is the one that counts.",
            "",
            *_table(ON_CONTROLLER, controllers),
            "",
        ]
    )


def written() -> str:
    head, _, _ = DOCUMENT.read_text().partition("## On brokers")
    return head + tables()


def test_the_page_has_the_table() -> None:
    assert DOCUMENT.read_text() == written(), "run tests/test_rights_page.py"


if __name__ == "__main__":
    DOCUMENT.write_text(written())
