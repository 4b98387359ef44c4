"""Commit and election, by the ISR and by a majority: what the designs of that seam and their experiments are made of.

- `rules`: when a majority has committed a record, whom it elects, and elections without the ELR
- `without_elr`: a node of a cluster without KIP-966
- `majority`: a node whose controller elects by a vote
- `clients`: a producer that sends at fixed times and a reader, for any acks
- `faults`: random failures of machines
"""
