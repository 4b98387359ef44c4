"""What every request passes: connections and their dispatch, deadlines of parked requests, client quotas.

No API is answered here; those are in `broker.apis`.
"""
