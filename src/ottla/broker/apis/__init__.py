"""How each API of Kafka's protocol is answered: a module for each family.

A handler reads its message, asks the part of the broker that knows, and writes the answer. It keeps nothing that
outlives its request.

To add an API, or a version of one:

1. Its row in `wire/apis.py`: the versions, and on which listeners.
2. Its handler, in the module of its family: a method `@serves(ApiKey.NAME)`, or the `__call__` of a class with this one API.
   The docstring begins with the name and the versions (`Metadata 0-13: ...`), and ends with `Left out: ...` if something
   of Kafka's API is deliberately not done. What only the active controller decides is a function with a row in
   `CONTROLLER_APIS` (`broker/cluster/controller_commands.py`) instead; with `forwarded=True` in step 1 brokers pass it on.
3. A new class is constructed in `broker/node.py`: `Broker._handlers`, or `Node.start` for a controller's listener.
4. A test with a real client in `tests/interop`. Record its run as the head of `tests/test_compatibility.py` says (or add the API
   to `NOT_SEEN` there, if no client sends it); `python tests/test_compatibility.py` then writes docs/COMPATIBILITY.md.

`tests/unit/broker/test_registration.py` and `tests/test_compatibility.py` fail while one of these is missing.
"""
