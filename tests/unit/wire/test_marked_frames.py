"""The frames that the fuzzer sends: those that are not mutated can be read, and the same seed gives the same ones."""

from __future__ import annotations

from random import Random

from ottla.wire.apis import APIS
from support.marked_frames import MUTATIONS, FrameMaker, Frames, Known, can_be_read, no_ids

KNOWN = Known(["orders"], ["group"], ["transaction"], ["User:alice"], no_ids())


def test_a_frame_of_every_api_and_version_can_be_read() -> None:
    maker = FrameMaker(Random(1), KNOWN)
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            for _ in range(5):
                frame = maker.frame(api.key, version)
                assert can_be_read(frame.data) == api.on_broker, frame
                for mark in frame.marks:
                    assert mark.position + mark.size <= len(frame.data)


def test_the_same_seed_gives_the_same_frames() -> None:
    one, other = (Frames(Random(7), KNOWN, kept=1) for _ in range(2))
    assert [one.mutated() for _ in range(500)] == [other.mutated() for _ in range(500)]


def test_mutations_break_some_frames_and_leave_others_readable() -> None:
    random = Random(3)
    frames = Frames(random, KNOWN, kept=1)
    for mutation in MUTATIONS:
        mutated = [mutation(frames.whole(), random) for _ in range(300)]
        readable = sum(map(can_be_read, mutated))
        assert readable < 300, f"{mutation.__name__} breaks nothing"
