"""Runs: what a seed draws, one run from birth to verdict, many runs added up."""
