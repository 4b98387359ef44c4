"""Seeds of the simulator in turn until one fails: `python -m mutants.seeds FIRST END CPU_S`, so much processor time for each."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
from types import FrameType

from ottla.sim.run.options import RunOptions
from ottla.sim.run.outcome import Verdict
from ottla.sim.run.seeds import run


def main(first: int, end: int, cpu_s: int) -> int:
    logging.disable()
    seed = first

    def stuck(_signal: int, _frame: FrameType | None) -> None:
        print(f"seed {seed} does not end", flush=True)
        os._exit(1)

    signal.signal(signal.SIGPROF, stuck)
    faulthandler.enable()
    for seed in range(first, end):
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        try:
            outcome = run(RunOptions.draw(seed))
        except Exception as error:
            print(f"seed {seed} {type(error).__name__}: {error}".splitlines()[0][:200], flush=True)
            return 1
        if outcome.verdict is not Verdict.PASSED:
            said = " ".join(outcome.problem.split())[:200]
            print(f"seed {seed} {outcome.verdict}: {said}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
