"""The console: what a cluster does and why, live in a browser; and the model of it that other displays share.

- `model`: a cluster as rows that remember when they changed. Pure.
- `watch`: asks a cluster and tails its event log, and tells the model.
- `web`: shows the model to browsers.

A display needs the first two, and neither knows of HTTP:

    watch = ClusterWatch(connect, clock)          # connect: makes a Client, as often as it is called
    async with watch:
        with watch.looking(GROUPS):               # what nobody looks at is asked seldom
            model = watch.model
            for id, broker in model.brokers.items(): ...
            seen = model.version
            await watch.changed(seen)             # returns when there is something new
            news = model.news([Selection("groups")], seen)

Tables are read as they are (`model.partitions["orders", 0]` is a `PartitionRow`). A display elsewhere gets them as JSON:
`model.news` since version `NOTHING` is a snapshot, and since a later version what has changed; `replay` applies it.
`model.problems` says in words what is wrong now. `rewind` gives leaders, ISRs and brokers as they were.
"""
