"""What goes wrong in a run: machines, disks, lines between them, and what an operator does to the cluster.

How to add a fault, say `stutter`, a process that stands still again and again:

1. Write a method in the class of its theme: `machines.MachineFaults`, `disks.DiskFaults`, `lines.LineFaults` or
   `administration.Administration`. It picks its victim, announces itself, strikes, and schedules its end. It returns
   False if there is nothing to strike. All chance comes from `self._random`, all waiting from `self._later`:

       def stutter(self) -> bool:
           node = self._pick("up")
           if node is None:
               return False
           self._announce(f"lets node {node.id} stutter")
           for number in range(5):  # `_later` takes the least and the most seconds: exactly so many here
               self._later(number, number, partial(self._pause, node, 0.1, 0.3))
           return True

   What the base class offers (pick a node, kill, cut power, start again later, slow a line) is in `context`. Before you
   harm a disk or cut power, ask `self._may_harm(node)`. `_later` does nothing once everything is healed. If
   your fault undoes something with `_later`, `Nemesis.end` must undo it, too: `TcpNetwork.heal` does so for lines, `SimDisk.mend`
   for disks; anything else is a line there. If the simulated machine cannot do yet what you need, teach it first:
   `engine/tcp.py` for lines, `engine/disk.py` for disks, with a test in `tests/unit/sim/test_sim_world.py` or `test_sim_disk.py`. It
   knows hosts and connections, not requests. The connections of a node are `node.process.sockets`. What draws outside of `_later`, say in a callback
   of a disk, needs a generator of its own: `random.Random(self._random.getrandbits(64))`.
2. Add a row to `registry.FAULTS`: its name, the method, what it does, how it ends, in which runs it occurs; and
   `takes_effect_later` if it may still fail to happen (an armed disk, a request that may be refused). Then the fault calls
   `self._count(NAME)` when it takes effect. Steps that are scheduled with `_later` have taken effect.
3. Run `.venv/bin/python -m pytest tests/unit/sim/test_faults.py -k stutter`: a short run with this fault only, in which it must
   strike and the cluster must come to rest. It does not show that the fault does what it says, and that it ends: write a test
   of that, and see it fail (`test_a_frozen_connection_carries_nothing…` in that file reads a trace). While you work, `.venv/bin/ottla sim --seeds 0..200 --with-fault stutter --jobs 2` has longer runs,
   together with other faults. Before the commit, `scripts/check`, `.venv/bin/ottla sim --seeds 0..500 --jobs 2 --require-coverage --results FILE` (a quarter
   of an hour of two free cores; with the same FILE it goes on where it stopped), and `tests/sim/test_mutations.py -m "not slow"`, whose
   bugs must still be noticed now that seeds draw differently.
4. The table of faults in docs/SIMULATOR.md names what there is by its theme: add yours if no word there covers it. A new label of the
   trace has a row in "Reading a trace". The changelog does not list faults.

If only a special schedule makes the fault interesting, give it `Rate.PROFILE` and write a profile (`run.profiles`).
"""
