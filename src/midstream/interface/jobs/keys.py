"""Every key that a job file may have: its kinds of values, its choices and its meaning.

Reading a job, the JSON schema for editors and the test of the reference all use these tables, so they agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args

from midstream.adaptation.policy import MODES, Policy
from midstream.adaptation.scaling import SlotRange
from midstream.algebra.declarations import Timestamps
from midstream.checkpoint.retention import Retention
from midstream.cluster.options import Incomplete
from midstream.connectors.registry import Option as Key
from midstream.errors import JobError, instead_of
from midstream.inputs.tables import CHANGES
from midstream.job.queries.faults import OnError
from midstream.job.slots.sites import sites_of
from midstream.job.task.exchange import chosen_bits
from midstream.job.task.memory import Memory, bytes_of
from midstream.language.foreign import DIALECTS

TEXT, NUMBER, FLAG, DURATION = (str,), (int,), (bool,), (str, int)


def _positive(number: int, place: str) -> None:
    if number < 1:
        raise JobError(f"{place} must be above zero, not {number}")


def _slots(wanted: int | str, place: str) -> None:
    SlotRange.of(wanted, place) if isinstance(wanted, str) else _positive(wanted, place)


def _small_batches(size: int | str, place: str) -> None:
    if bytes_of(size, place) < 0:
        raise JobError(f"{place} cannot be {size!r}", hint="0 has executors run all batches")


def _not_negative(number: float, place: str) -> None:
    if number < 0:
        raise JobError(f"{place} must be a number that is not negative, not {number!r}")


_OF_POLICY = {"mode": Key(TEXT, "", MODES), "verify": Key(DURATION, ""), "per_slot": Key(FLAG, "")}
POLICY_KEYS: Mapping[str, Key] = {
    f.name: _OF_POLICY.get(f.name, Key(float, "", check=_not_negative)) for f in fields(Policy) if f.name != "constants"
}
_ADAPTIVITY = Key((str, dict), "Whether better plans are looked for: a mode, or a table of mode and limits.", MODES)
OFF = Policy("off")


def policy_in(wanted: Any, place: str, usual: Policy = OFF) -> Policy:
    """The policy at a place of a job file: a mode, or a table with a mode and more; the usual one if none is said."""
    if wanted is None:
        return usual
    _ADAPTIVITY.require(wanted, place)
    said: dict[str, Any] = wanted if isinstance(wanted, dict) else {"mode": wanted}
    for key, value in said.items():
        if key not in POLICY_KEYS:
            raise JobError(f"unknown key {place}.{key}", hint=instead_of(key, POLICY_KEYS))
        POLICY_KEYS[key].require(value, f"{place}.{key}")
    return Policy(**{"mode": "auto", **said})


JOB_KEYS: Mapping[str, Key] = {
    "checkpoint": Key(TEXT, "Where state, results and progress are kept.", needed=True),
    "name": Key(TEXT, "What the checkpoint knows the job by; the file's name by default."),
    "on": Key(TEXT, "Where the job runs: on Spark (the default), or in this process without Java.", ("spark", "local")),
    "trigger": Key(TEXT, 'How often a batch begins, such as "5 seconds"; as soon as the last one ended by default.'),
    "slots": Key(
        (int, str),
        "How many tasks share the work of a batch: by default Spark's parallelism, in this process 1; "
        'as many as it needs within a range such as "2..8".',
        check=_slots,
    ),
    "master": Key(TEXT, 'The Spark master; "local[*]" by default.'),
    "ticks": Key(FLAG, "Whether a clock moves time while no rows come."),
    "retained": Key(NUMBER, "How many manifests are kept, at least; 10 by default.", check=_positive),
    "memory_per_slot": Key(
        DURATION, 'What a slot may hold in memory, such as "512 MB"; "1 GB" by default.', check=Memory.of
    ),
    "small_batches": Key(
        DURATION,
        "On Spark, up to which size the driver runs a batch itself, such as '4 MB'; 0 for none.",
        check=_small_batches,
    ),
    "retention": Key(
        (dict,),
        "What is kept of results, dead_letters and replaced: by age, size or batches; all by default.",
        check=Retention.of,
    ),
    "metrics_retained": Key(
        NUMBER, "For how many batches metrics are kept, at least; 100000 by default.", check=_positive
    ),
    "scheduling": Key(TEXT, "Which operator runs when: dfs, bfs, rr, batch:K or chain."),
    "adaptivity": _ADAPTIVITY,
    "group_bits": Key(
        NUMBER,
        "How many bits of a key's hash are its partition group, 8 to 12; 8 by default.",
        check=lambda bits, _: chosen_bits(bits),
    ),
    "sites": Key(
        (dict,),
        "Named sets of slots at which streams may live, such as {eu = [0, 1], us = [2, 3]}.",
        check=lambda sites, _: sites_of(sites),
    ),
    "rebalancing": Key(FLAG, "Whether partition groups move by themselves when one slot has much more to do."),
}

STREAM_KEYS: Mapping[str, Key] = {
    "format": Key(
        TEXT, "The format of a folder: parquet, csv, json, avro, arrow, or any source of Spark's; or `source` is given."
    ),
    "source": Key((str, dict), "What the stream is read from instead of a folder: a table of kind and options."),
    "path": Key(TEXT, "The folder of files, relative to the job file."),
    "schema": Key(TEXT, 'The columns of the source, as Spark writes them: "id BIGINT, ts TIMESTAMP".'),
    "time": Key(TEXT, 'The time column; "ts" by default.'),
    "lateness": Key(DURATION, "How far rows may be out of order; later ones are dead letters. 0 by default."),
    "columns": Key((list,), "SQL expressions over the source's columns; all columns as they are by default."),
    "options": Key((dict,), "Options of the source, such as maxFilesPerTrigger."),
    "timestamps": Key(TEXT, "Whose times rows have: their own, or those of their batch.", get_args(Timestamps)),
    "skew": Key(
        DURATION, "How far the stream may be behind the others; with it, others do not wait while it is silent."
    ),
    "max_ahead": Key(DURATION, 'How far ahead times are believed: a duration, "clock" (the default) or "any".'),
    "site": Key(TEXT, "The site at which the rows come in; any slot by default."),
    "retain": Key(DURATION, "For how long rows are kept for queries that come or change later; not at all by default."),
    "keep": Key((list,), 'Which columns retained rows have; ["*"], all of them, by default.'),
}

TABLE_KEYS: Mapping[str, Key] = {
    "key": Key((str, list), "The columns that tell the rows of the table apart."),
    "changes": Key(TEXT, "What comes: rows that stay, rows that replace those of their key, or changes.", CHANGES),
    "op": Key(TEXT, "The column that says what each change is: insert, update or delete, or their kin."),
    **STREAM_KEYS,
}
"""A table is read as a stream is, and says besides what its rows mean."""

QUERY_KEYS: Mapping[str, Key] = {
    "cql": Key(TEXT, "The query.", needed=True),
    "dialect": Key(TEXT, "The system whose SQL it is; this language by default.", DIALECTS),
    "plan": Key(TEXT, 'The join tree to start with, "((A B) C)"; the optimizer\'s by default.'),
    "emit_every": Key(DURATION, "How often non-monotone results are released, in event time."),
    "sink": Key(
        (str, dict), "Where results go besides the results table: a kind of sink, or a table of kind and options."
    ),
    "adaptivity": _ADAPTIVITY,
    "on_error": Key(TEXT, "What a value does that makes the query fail; stop_query by default.", get_args(OnError)),
    "incomplete": Key(
        TEXT,
        "What becomes of results that lack rows from before the query began; emit by default.",
        get_args(Incomplete),
    ),
    "since": Key(
        (str, int),
        'From when on a new query answers: "now" (the default), "retained" (as rows are kept) or an instant.',
    ),
    "backfill_rate": Key(
        NUMBER,
        "How many rows a batch reads again from sources for windows that lack rows; not at all by default.",
        check=_positive,
    ),
}

FUNCTION_KEYS: Mapping[str, Key] = {
    "python": Key(TEXT, "A function of Arrow arrays, or the class of an accumulator: package.module:name."),
    "returns": Key(
        TEXT, 'The type of its values, such as "DOUBLE"; not needed for a ScalarFunction or AggregateFunction.'
    ),
    "aggregate": Key(FLAG, "Whether python makes accumulators; a function of columns by default."),
    "version": Key(TEXT, "Says alone whether the function has changed; its code does by default."),
    "sql": Key(TEXT, "A value of the language to put in place of calls, instead of python."),
    "parameters": Key((list,), "The names in sql that stand for arguments."),
}

_JSON_KINDS = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}


def job_schema() -> dict[str, Any]:
    """The JSON schema of job files, which editors check and complete them by."""
    named = {"type": "object", "minProperties": 1}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Midstream job",
        "type": "object",
        "additionalProperties": False,
        "required": ["job"],
        "properties": {
            "job": _table(JOB_KEYS),
            "streams": {**named, "additionalProperties": _table(STREAM_KEYS)},
            "tables": {**named, "additionalProperties": _table(TABLE_KEYS)},
            "queries": {"type": "object", "additionalProperties": _table(QUERY_KEYS)},
            "functions": {"type": "object", "additionalProperties": _table(FUNCTION_KEYS)},
            "links": {
                "type": "object",
                "description": 'What sending between two sites takes: "eu -> us" = "80 ms, 10 MB/s", or "eu <-> us".',
                "additionalProperties": {"type": "string"},
            },
            "spark": {
                "type": "object",
                "description": "Settings of the Spark session.",
                "additionalProperties": {"type": ["string", "integer", "number", "boolean"]},
            },
        },
    }


def _table(keys: Mapping[str, Key]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [name for name, key in keys.items() if key.needed],
        "properties": {name: _value(key) for name, key in keys.items()},
    }


def _value(key: Key) -> dict[str, Any]:
    described: dict[str, Any] = {"description": key.meaning} if key.meaning else {}
    if key is _ADAPTIVITY:
        return {**described, "anyOf": [{"enum": list(MODES)}, _table(POLICY_KEYS)]}
    if key.check is _not_negative:
        described["minimum"] = 0
    if key.choices:
        return {**described, "enum": list(key.choices)}
    kinds = [_JSON_KINDS[kind] for kind in key.kinds]
    listed = {"items": {"type": "string"}} if list in key.kinds else {}
    return {**described, "type": kinds[0] if len(kinds) == 1 else kinds, **listed}
