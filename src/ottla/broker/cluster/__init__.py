"""This node's part in the cluster: the metadata quorum, the controller, registration and heartbeats, the metadata
cache, and the channels to other nodes.

What a controller decides is in `controller`, how a quorum agrees is in `raft`; here is what drives both.
"""
