"""The golden scripts: each is played on whole nodes, and must tell what it told when it was written.

`pytest tests/scripts --rewrite` writes down what they tell now. Commit only differences that you understand.
"""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

import pytest

from ottla.sim.mutations import MUTATIONS, Mutation
from ottla.sim.scripts.arguments import ScriptError
from ottla.sim.scripts.script import Block, parse, run_script

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_tells_what_it_told(path: Path, rewrite: bool) -> None:
    written = path.read_text()
    told, problem = "", ""
    try:
        told = run_script(written, path.name)
    except ScriptError as error:
        problem = str(error)
    if problem:  # outside of the handler: the traceback says nothing that the line does not
        pytest.fail(problem, pytrace=False)
    if rewrite:
        path.write_text(told)
    elif told != written:
        lines = unified_diff(
            written.splitlines(), told.splitlines(), "written", "told now", lineterm="", n=6
        )
        pytest.fail(f"{path.name} (--rewrite accepts it)\n" + "\n".join(lines), pytrace=False)


@pytest.mark.parametrize("schedule", ["S1", "S2", "S3", "S4", "S5", "S6"])
def test_every_schedule_of_the_reliability_document_has_a_script_that_notices_its_bug(
    schedule: str,
) -> None:
    """The bug that the schedule is known for is put back: one of its scripts tells something else, or stops."""
    (bug,) = (each for each in MUTATIONS.values() if each.bug.split()[0] == schedule)
    scripts = [path for path in SCRIPTS if path.stem.startswith(f"{schedule.lower()}_")]
    assert any(_is_changed_by(bug, path) for path in scripts), (bug.name, scripts)


def _is_changed_by(bug: Mutation, path: Path) -> bool:
    try:
        with bug.applied():
            return run_script(path.read_text(), path.name) != path.read_text()
    except ScriptError:
        return True


def test_a_script_is_the_same_text_after_parsing() -> None:
    text = "# a\n# b\n\nproduce 1 m0\nstate\n----\nx\ny\n\nstate\n"
    blocks = parse(text)
    assert blocks == [
        Block(1, ["# a", "# b"]),
        Block(4, ["produce 1 m0", "state"], ["x", "y"]),
        Block(10, ["state"]),
    ]
    assert "\n\n".join(block.render() for block in blocks) + "\n" == text


def test_a_step_that_cannot_be_taken_names_its_line() -> None:
    with pytest.raises(ScriptError, match=r"script:3: fly 1: fly is none of cluster, topic, start"):
        run_script("# what\n\nfly 1\n")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("kill 9", "there is no broker 9, only 1,2"),
        ("kill one", "one is no number"),
        ("hold fetsch 1", "fetsch is none of fetch, metadata, alter-partition, end-txn"),
        ("send fetch", "missing a required argument: 'node'; usage: send kind node [which]"),
        ("state 1", "too many positional arguments; usage: state"),
        ("elect me 1", "me is none of preferred, unclean"),
        ("write tx 1 m0", "tx is none of (nothing yet)"),
        ("expect isr=1", "not within 60 s: isr=1 (no news); instead:\n1 leader    epoch 0  LEO 0"),
        ("expect lader=1", "lader is none of leader=B, isr=B,B, equal"),
    ],
)
def test_a_wrong_line_says_what_would_be_right(line: str, why: str) -> None:
    with pytest.raises(ScriptError) as error:
        run_script(f"cluster 2\ntopic replicas=1,2\n{line}\n", "my.txt")
    assert f"my.txt:3: {line}: {why}" in str(error.value)


def test_a_script_begins_with_a_cluster_and_a_topic() -> None:
    with pytest.raises(ScriptError, match=r"first comes: cluster brokers \[settings …\]"):
        run_script("state\n")
    with pytest.raises(ScriptError, match=r"first comes: topic \[settings …\]"):
        run_script("cluster 1\nstate\n")


def test_the_same_script_tells_the_same_twice() -> None:
    text = SCRIPTS[0].read_text()
    assert run_script(text) == run_script(text)


def script(name: str) -> str:
    return (Path(__file__).parent / f"{name}.txt").read_text()


def run_with(bug: str, name: str) -> str:
    with MUTATIONS[bug].applied():
        return run_script(script(name))


def test_P29_with_hw_truncation_the_script_of_the_loss_scenario_ends_in_the_loss() -> None:
    """The scripts bite: with the rule of before KIP-101, the same schedule loses the committed record."""
    with pytest.raises(
        ScriptError, match=r"move-leader 2: D7 .* truncated offset 1 .* which is committed"
    ):
        run_with("truncates_to_its_high_watermark", "s1_hw_truncation")


def test_P29_without_epochs_the_script_of_the_divergence_scenario_ends_in_divergence() -> None:
    with pytest.raises(ScriptError, match=r"expect equal isr=1,2|D1|D2"):
        run_with("compares_only_lengths", "s2_divergence")


def test_without_the_broker_epoch_the_script_of_kip_903_lets_an_empty_replica_into_the_isr() -> (
    None
):
    with pytest.raises(
        ScriptError, match=r"D10 node 2.*in the ISR without .*: it lacks \d+\.\.\d+"
    ):
        run_with("broker_epochs_are_not_checked", "s5_kip_903")


def test_without_the_epoch_the_script_of_the_late_end_commits_the_next_transaction() -> None:
    """With the bug of before KIP-890 put back, the late request ends what it was not meant for."""
    told = run_with("ends_are_not_held_against_the_epoch", "s6_late_end")
    written = script("s6_late_end")
    assert "commit is refused: PRODUCER_FENCED" in written
    assert "commit is refused: PRODUCER_FENCED" not in told
