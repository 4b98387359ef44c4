"""What `ottla top` shows: stories in top/*.txt, each a cluster, a terminal and keys, with the screens as they are seen.

`pytest tests/unit/console/test_top_screens.py --rewrite` writes down what they show now. Commit only differences that you understand.
"""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

import pytest

from ottla.client.model import BrokerInfo, ClusterDescription
from ottla.console.top.picture import Explained
from support.top_scenes import CLUSTERS, TopUser

STORIES = sorted((Path(__file__).parent / "top").glob("*.txt"))
EDGE = "|"


def told(story: str) -> str:
    """The same with the screens as they are now. Lines of it: `> cluster NAME`, `> terminal COLUMNS ROWS`, `> press KEY …`,
    `> type WORDS`, `> told ABOUT: WORDS` (an explanation arrives); all others but screens are for readers."""
    user, lines = TopUser(CLUSTERS["nothing"]()), []
    for each in story.splitlines():
        if each.startswith(EDGE):
            continue
        lines.append(each)
        if not each.startswith("> "):
            continue
        word, _, rest = each.removeprefix("> ").partition(" ")
        match word:
            case "cluster":
                user = TopUser(CLUSTERS[rest](), *user.size)
                continue
            case "terminal":
                columns, rows = map(int, rest.split())
                user.size = user.size._replace(columns=columns, rows=rows)
            case "press":
                user.press(*rest.split())
            case "type":
                user.press(*rest)
            case "told":
                about, _, words = rest.partition(": ")
                user.told[about] = Explained(words.replace("\\n", "\n"))
            case _:
                pytest.fail(f"{each}: it begins with none of cluster, terminal, press, type, told")
        lines += [EDGE + line for line in user.text.split("\n")]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_story_shows_what_it_showed(path: Path, rewrite: bool) -> None:
    written = path.read_text()
    now = told(written)
    if rewrite:
        path.write_text(now)
    elif now != written:
        lines = unified_diff(written.splitlines(), now.splitlines(), "written", "shown now", lineterm="", n=6)  # fmt: skip
        pytest.fail(f"{path.name} (--rewrite accepts it)\n" + "\n".join(lines), pytrace=False)


def test_there_are_stories() -> None:
    assert len(STORIES) >= 5


def test_nothing_is_called_well_while_only_the_brokers_are_known() -> None:
    model = CLUSTERS["nothing"]()
    model.structure.described(ClusterDescription("id", 1, (BrokerInfo(1, "host", 1, None),)), 1)
    model.settle(1)
    user = TopUser(model)
    assert "Asking" in user.text
    user.press("6")
    assert "Nothing is wrong" not in user.text
