"""What `ottla top` shows: a cluster on a screen of lines. Pure: `ottla.cli.top` has the terminal, the keys and the clock.

- `lines`: texts with a meaning, cut and filled to a number of cells; `figures`: numbers, ages and small charts in such cells
- `picture`: what a screen is drawn from: the model, the time, the terminal's size
- `views`: where somebody is, and how he came there
- `tables`: columns that fit a width; `listing`: rows in order, filtered, of which only those are drawn that are seen
- `brokers`, `partitions`, `groups`, `topics`, `events`, `wrong`: the lists
- `pages`, `partition_page`: what is read rather than chosen from
- `screens`: all of these by name
- `frame`: the whole screen; `pressing`: what keys do; `keys`: keys from what a terminal sends
- `painting`: from lines to what a terminal obeys
- `snapshot`: the same for programs
"""
