"""`ottla`, to which some nodes of ottla are brokers of Apache Kafka: what `ottla migrate` does is tested so without Java.

python other_kind.py 1,2 migrate status
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ottla.cli.main import main
from ottla.client.migration import Kind, Migration

KAFKAS = {int(id) for id in sys.argv.pop(1).split(",")}
as_they_are = Migration.kinds


async def as_they_play(self: Migration, ids: Iterable[int]) -> dict[int, Kind]:
    found = await as_they_are(self, ids)
    return {id: Kind.KAFKA if id in KAFKAS else kind for id, kind in found.items()}


if __name__ == "__main__":
    Migration.kinds = as_they_play  # type: ignore[method-assign]
    main()
