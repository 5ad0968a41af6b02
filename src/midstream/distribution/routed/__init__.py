"""Routed joins: each stream's new rows travel through the windows of the others on a way of their own.

There is no intermediate state. A plan says, for every stream, in which order its rows meet the other windows and where
each meeting takes place; node operator sets say what each node does for it; modification and migration change both
while results flow. The ideas are Tran and Lee's (`docs/distributed_joins.md` says where we differ).
"""
