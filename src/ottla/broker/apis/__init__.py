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
3. What it needs: its row in `security/needs.py`, as in Kafka's KafkaApis. Dispatch does not look at it: the handler asks
   (`NEED.met(request.rights, name)`). An exchange in `tests/support/rights` tries the row with all rights and without each.
   `.venv/bin/python tests/test_rights_page.py` writes docs/RIGHTS.md anew.
4. A new class is constructed in `broker/node.py`: `Broker._handlers`, or `Node.start` for a controller's listener.
5. Tests: each version over a raw connection (`cluster.ask` in `tests/process`; example:
   `test_acls_are_refused_in_every_version` in `test_bad_admin.py`), and a real client in `tests/interop`.
6. Delete its row in `NOT_SERVED` of `tests/test_compatibility.py`. Then record the client's run as the head of that file says, which
   writes docs/COMPATIBILITY.md, too. If no client can send it, add it to `NOT_SEEN` instead, and run that file without DIR.

`tests/unit/broker/test_registration.py`, `tests/unit/security` and `tests/test_compatibility.py` fail while a row, a handler, a docstring,
a right or the record of a client is missing; nothing notices that a version is not tested, so step 5 is yours. The checks that concern an API:
`.venv/bin/python -m pytest tests/test_*.py tests/unit/wire/test_apis_table.py tests/unit/broker tests/unit/security`.

To add a *private request*, one that Kafka does not have (`load.py` is an example):

1. Its key in `PrivateApi` of `wire/apis.py`.
2. Its handler: a question and an answer in JSON (`wire/private_json.py`), and its docstring the form of both.
3. What it needs, in `security/needs.py` and in the handler, as above.
4. `serve({PrivateApi.NAME: …})` in `Broker.start` of `broker/node.py`.
5. A question in `tests/support/private_requests.py`, and a test of the handler (`one_node.alone` in `tests/unit/broker` makes a node).
6. `tests/test_rights_page.py` and `tests/test_compatibility.py`, run as programs, write its rows into the documents.
"""
