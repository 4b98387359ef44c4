"""Asks a cluster and tails its event log, and tells a model what it learns.

- `cluster_watch`: all of it; what a display uses
- `polling`: how often something is asked
- `asking`: what the questions have in common
- `structure`, `events`, `flow`, `groups`, `losses`: the questions, by theme
- `metrics_page`: what is read from a broker's metrics page
"""
