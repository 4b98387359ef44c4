"""What every request passes: listeners, connections and dispatch, deadlines of parked requests, client quotas.

No API is answered here; those are in `broker.apis`.
"""
