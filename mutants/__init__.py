"""An honest score: bugs that a tool plants, and who notices them.

`ottla.sim.mutations` lists bugs that people thought of, and the simulator was made to notice these. This package changes
the product's sources by rule instead: nobody chose the bugs. For each it runs the unit tests that reach its line, and
seeds of the simulator.

    operators   every change that can be made to a source, without I/O
    sample      which of them are tried, from a seed
    reach       which unit tests run which line
    trial       one mutant against tests and seeds
    report      the tables of docs/MUTANTS.md
"""
