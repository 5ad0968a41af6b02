"""The oracle: what a plan means, evaluated snapshot by snapshot, naively. Everything else is held against it."""

from midstream.algebra.semantics.evaluation import Oracle, coalesced, evaluate, keeps_intervals, moments, snapshot

__all__ = ["Oracle", "coalesced", "evaluate", "keeps_intervals", "moments", "snapshot"]
