"""The lab: every replication design that the documents weigh, on the same schedule, side by side (PROMISES part G).

- `design`: what a design is, and at which seam of the product it replaces a part; `designs`: one file for each
- `experiment`: what an experiment is; `experiments`: one file for each
- `harness`: a simulated cluster of any design, with counts of everything on its wire
- `zookeeper`: the simulated ZooKeeper of the older designs
- `results`: tables, charts and timelines; `report`: the pages made of them
- `runner`: runs experiments on several processes

A node of the lab is a node of the product with one part exchanged. It runs in the simulator only.
"""
