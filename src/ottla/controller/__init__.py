"""What the active controller decides: broker liveness, placement, elections, topics, settings.

Pure: commands in, metadata records out. Start reading at `controller`; the rules of leadership are in
`elections`, the state machines in `states`.
"""
