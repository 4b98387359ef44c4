"""What the truncation designs do to a log: scripted scenarios with their timelines, and a search by random schedules.

The experiments `loss` and `divergence` are made of both; `ottla lab play` shows a scenario step by step.
"""
