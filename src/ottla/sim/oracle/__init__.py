"""The oracle: it watches the cluster from outside, checks the invariants, and never changes what a node does.

- `rules`: every invariant by its name (D1 … D12, M1 … M9, C1 … C4), and the method that checks it. Start here.
- `safety_checker`: the entry. After each event it calls the checkers of replicas, logs, the ISR, decisions and clients.
- `ledger`, `evidence`, `last_seen`, `eligibility`, `expiry`, `leader_history`: what is known, recorded outside of the
  cluster. The checkers compare nodes with it, the nemesis asks it which node it may harm.
- `quorum_checker`, `metadata_replay`: the metadata quorum, and the committed records read without the product's code.
- `history`, `group_oracle`: what clients were answered; groups and transactions.
- `coverage` and the observers: which rare states a run has met.
"""
