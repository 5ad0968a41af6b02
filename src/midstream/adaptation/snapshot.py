"""What an adaptive query knows and has decided, as plain values that a file can hold, and back again.

Nothing is lost on the way: a process that restores it decides as if there had been no interruption. Plans are
kept as texts, arrays as text of their bytes.
"""

from __future__ import annotations

import base64
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import astuple
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.adaptation.adaptive import Adaptive
from midstream.adaptation.controller import Candidate, Controller, Decision, Watch
from midstream.adaptation.drift import Drift
from midstream.adaptation.key_counts import HeavyValues, KeyCounts
from midstream.adaptation.observer import Observer, Source
from midstream.adaptation.smoothing import Excursion, Smoothed
from midstream.algebra.statistics import Estimate
from midstream.optimizer.plans import Plan
from midstream.optimizer.shapes import shape_text
from midstream.optimizer.sites.links import links_from_json, links_to_json

Kept = dict[str, Any]
PlanOf = Callable[[str], Plan]

_COUNTERS = ("latest", "newest", "passed_ticks", "batches", "fresh", "jumped")
_PACE = {"apart": "apart", "since": "since_look", "due": "looking", "followed": "followed", "rest": "rest"}
"""How manifests name what a pace depends on."""


def keep(adaptive: Adaptive) -> Kept:
    """All that an adaptive query must remember."""
    return {
        "observer": keep_observer(adaptive.observer),
        "controller": _keep_controller(adaptive.controller),
        "drift": _keep_drift(adaptive.drift),
        "decisions": [decision.as_dict() for decision in adaptive.history],
        "checked_at": adaptive.checked_at,
        "batches": adaptive.batches,
        "running": adaptive.running.text,
    }


def restore(adaptive: Adaptive, kept: Mapping[str, Any], plan_of: PlanOf) -> None:
    """Restores a fresh adaptive query from what was kept."""
    restore_observer(adaptive.observer, kept["observer"])
    _restore_controller(adaptive.controller, kept["controller"], plan_of)
    _restore_drift(adaptive.drift, kept["drift"])
    adaptive.history.clear()
    adaptive.history.extend(decision_of(record, plan_of) for record in kept["decisions"])
    adaptive.checked_at, adaptive.batches = kept["checked_at"], kept["batches"]
    adaptive.running = plan_of(kept["running"])


def decision_of(record: Mapping[str, Any], plan_of: PlanOf) -> Decision:
    """A decision from its plain values."""
    return Decision(
        record["moment"],
        record["action"],
        plan_of(record["plan"]),
        plan_of(record["target"]),
        record["cost"],
        record["target_cost"],
        record["migration_cost"],
        record["evidence"],
        record["reason"],
    )


def keep_observer(observer: Observer) -> Kept:
    """What an observer knows of the streams."""
    return {
        **{name: getattr(observer, name) for name in _COUNTERS},
        **{name: getattr(observer.pace, own) for own, name in _PACE.items()},
        "batch_ticks": _keep_smoothed(observer.batch_ticks),
        "sources": {alias: _keep_source(source) for alias, source in observer.sources.items()},
        "keys": {text: _keep_counts(counts) for text, counts in observer.keys.items()},
        "heavy": [[_bytes(heavy.hashes), _bytes(heavy.shares)] for heavy in observer.heavy],
    }


def restore_observer(observer: Observer, kept: Mapping[str, Any]) -> None:
    """Restores an observer of the same query from what was kept."""
    for name in _COUNTERS:
        setattr(observer, name, kept[name])
    for own, name in _PACE.items():
        setattr(observer.pace, own, kept[name])
    observer.batch_ticks = _smoothed(kept["batch_ticks"])
    for alias, source in observer.sources.items():
        _restore_source(source, kept["sources"][alias])
    for heavy, (hashes, shares) in zip(observer.heavy, kept["heavy"], strict=True):
        _restore_heavy(heavy, hashes, shares)
    for text, counts in observer.keys.items():
        _restore_counts(counts, kept["keys"][text], observer.heavy)


def _keep_smoothed(smoothed: Smoothed) -> list[Any]:
    own = [smoothed.fade, smoothed.above, smoothed.below, smoothed.weight, smoothed.variance]
    return [*own, list(astuple(smoothed.excursion))]


def _smoothed(kept: list[Any]) -> Smoothed:
    fade, above, below, weight, variance, excursion = kept
    return Smoothed(fade, above, below, weight, variance, Excursion(*excursion))


def _keep_source(source: Source) -> Kept:
    return {
        "rate": _keep_smoothed(source.rate),
        "rows": [source.rows, source.batch_rows],
        "width": source.width,
        "selections": {text: _keep_smoothed(smoothed) for text, smoothed in source.selections.items()},
        "sample": None if source.sample is None else _text(_ipc(source.sample)),
    }


def _restore_source(source: Source, kept: Mapping[str, Any]) -> None:
    source.rate = _smoothed(kept["rate"])
    source.rows, source.batch_rows = kept["rows"]
    source.width = kept["width"]
    source.selections = {text: _smoothed(smoothed) for text, smoothed in kept["selections"].items()}
    sample = kept["sample"]
    source.sample = None if sample is None else pa.ipc.open_stream(base64.b64decode(sample)).read_next_batch()


def _keep_counts(counts: KeyCounts) -> Kept:
    return {
        "hashes": _bytes(counts.hashes),
        "counts": _bytes(counts.counts),
        "rows": counts.rows,
        "likeness": counts.likeness,
        "sample": counts.sample,
        "heavy": [_bytes(counts.heavy.hashes), _bytes(counts.heavy.shares)],
    }


def _restore_counts(counts: KeyCounts, kept: Mapping[str, Any], shared: list[HeavyValues]) -> None:
    counts.hashes, counts.counts = _array(kept["hashes"], np.uint64), _array(kept["counts"], np.float64)
    counts.rows, counts.likeness, counts.sample = kept["rows"], kept["likeness"], kept["sample"]
    if not any(counts.heavy is heavy for heavy in shared):
        _restore_heavy(counts.heavy, *kept["heavy"])


def _restore_heavy(heavy: HeavyValues, hashes: str, shares: str) -> None:
    heavy.hashes, heavy.shares = _array(hashes, np.uint64), _array(shares, np.float64)


def _keep_controller(controller: Controller) -> Kept:
    watching, regimes = controller.watching, controller.regimes
    return {
        "candidates": [[c.plan.text, c.gained, c.looks] for c in controller.candidates.values()],
        "migrated_at": list(controller.migrated_at),
        "corrections": [[shape_text(plan), factor] for plan, factor in controller.corrections.items()],
        "watching": None
        if watching is None
        else [
            watching.before.text,
            watching.until,
            watching.settled,
            watching.measured,
            watching.predicted,
            watching.old_predicted,
            watching.ticks,
            watching.linked,
            watching.linked_predicted,
            watching.old_linked,
        ],
        "weighed": None if controller.weighed is None else [links_to_json(controller.weighed), controller.news],
        "regimes": [None if regimes.best is None else regimes.best.text, regimes.since, list(regimes.lasted)],
    }


def _restore_controller(controller: Controller, kept: Mapping[str, Any], plan_of: PlanOf) -> None:
    candidates = [Candidate(plan_of(text), gained, looks) for text, gained, looks in kept["candidates"]]
    controller.candidates = {candidate.plan.logical: candidate for candidate in candidates}
    controller.migrated_at = deque(kept["migrated_at"])
    controller.corrections = {plan_of(text).logical: factor for text, factor in kept["corrections"]}
    watching = kept["watching"]
    controller.watching = None if watching is None else Watch(plan_of(watching[0]), *watching[1:])
    if (weighed := kept.get("weighed")) is not None:
        controller.weighed, controller.news = links_from_json(weighed[0]), weighed[1]
    best, controller.regimes.since, lasted = kept["regimes"]
    controller.regimes.best = None if best is None else plan_of(best)
    controller.regimes.lasted.clear()
    controller.regimes.lasted.extend(lasted)


def _keep_drift(drift: Drift) -> Kept:
    reference = [[name, e.value, e.error if math.isfinite(e.error) else None] for name, e in drift.reference.items()]
    return {"reference": reference, "unweighed": drift.unweighed}


def _restore_drift(drift: Drift, kept: Mapping[str, Any]) -> None:
    drift.unweighed = kept["unweighed"]
    drift.reference = {
        name: Estimate(value, math.inf if error is None else error) for name, value, error in kept["reference"]
    }


def _bytes(array: npt.NDArray[Any]) -> str:
    return _text(array.tobytes())


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _array(text: str, kind: Any) -> npt.NDArray[Any]:
    return np.frombuffer(base64.b64decode(text), kind).copy()


def _ipc(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue())
