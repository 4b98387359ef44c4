"""How each API of Kafka's protocol is answered: a module for each family.

A handler reads its message, asks the part of the broker that knows, and writes the answer. It keeps nothing that
outlives its request.
"""
