"""How each API of Kafka's protocol is answered: a module for each family.

A handler reads its message, asks the part of the broker that knows, and writes the answer. It keeps nothing that
outlives its request.

To add an API, or a version of one:

1. Its row in `wire/apis.py`: all versions of Kafka 4.3, the first flexible one, and the listeners on which Kafka announces it
   (`listeners` in Kafka's NAMERequest.json; a controller's also stands in `ON_CONTROLLER` of the test named next). The
   installed package `kio` has a folder for each version (`kio/schema/NAME/v*`, `__flexible__` in there);
   `tests/unit/wire/test_apis_table.py` compares the row with them.
2. Its handler, in the module of its family: a method `@serves(ApiKey.NAME)`, or the `__call__` of a class with this one API.
   A class that gets its second API is renamed `…Handlers`, and its `__call__` gets a name.
   Layouts need no code: `request.message()` is kio's entity of that version, and `request.respond({...})` takes plain values under kio's
   field names, with defaults for the fields that are left out (`wire/messages.py`).
   The docstring begins with the name and the versions (`Metadata 0-13: ...`), and ends with `Left out: WHAT.` if something
   of Kafka's API is deliberately not done; that becomes a row of docs/COMPATIBILITY.md. What only the active controller decides is a function with a row in
   `CONTROLLER_APIS` (`broker/cluster/controller_commands.py`) instead; with `forwarded=True` in step 1 brokers pass it on.
3. A new class is constructed in `broker/node.py`: `Broker._handlers`, or `Node.start` for a controller's listener.
4. Tests: each version over a raw connection (`cluster.ask` in `tests/process`; example:
   `test_acls_are_refused_in_every_version` in `test_bad_admin.py`), and a real client in `tests/interop`.
5. Delete its row in `NOT_SERVED` of `tests/test_compatibility.py`. Then record the client's run as the head of that file says, which
   writes docs/COMPATIBILITY.md, too. If no client can send it, add it to `NOT_SEEN` instead, and run that file without DIR.

`tests/unit/broker/test_registration.py` and `tests/test_compatibility.py` fail while a row, a handler, a docstring or the record of a
client is missing; nothing notices that a version is not tested, so step 4 is yours. The checks that concern an API:
`.venv/bin/python -m pytest tests/test_compatibility.py tests/unit/wire/test_apis_table.py tests/unit/broker/test_registration.py`.
"""
