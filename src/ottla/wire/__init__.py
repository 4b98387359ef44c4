"""Frames, headers, messages and errors of Kafka's protocol, and the client connection."""
