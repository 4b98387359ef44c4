"""The experiments, one file for each. A file has an `EXPERIMENT`, and the functions that its runs call."""
