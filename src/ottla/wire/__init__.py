"""Kafka's protocol: frames, headers, messages, errors, and the connection of a client.

It knows bytes and their meaning. What a broker answers is in `broker.apis`, what is in a batch of records in `records`.
"""
