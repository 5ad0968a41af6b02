"""Node operator sets (Tran and Lee): where each stream's new rows meet the other windows, and how that changes.

There is no intermediate state. A plan says, for every stream, in which order its rows meet the other windows and where
each meeting takes place; node operator sets say what each node does for it; modification and migration change both
while results flow. `docs/distributed_joins.md` says where we differ.
"""
