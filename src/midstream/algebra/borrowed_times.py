"""The SQL of functions of times, dates and their formats, by their names."""

from __future__ import annotations

from collections.abc import Mapping

_ZULU = "regexp_replace({0}, 'Z$', '+00')"
"""A text of a time whose zone may be written as Z."""


def _in_zone(instant: str) -> str:
    """An instant in a format, as a zone's clock shows it; `%z` is how far that is from UTC."""
    minutes = f"((epoch(timezone({{2}}, {instant})) - epoch(timezone('UTC', {instant})))::BIGINT // 60)"
    hours, rest = (f"lpad((abs({minutes}) {sign} 60)::VARCHAR, 2, '0')" for sign in ("//", "%"))
    offset = f"CASE WHEN {minutes} < 0 THEN '-' ELSE '+' END || {hours} || coalesce(':' || nullif({rest}, '00'), '')"
    shown = f"strftime(timezone({{2}}, {instant}), replace({{1}}, '%z', chr(1)))"
    return f"replace({shown}, chr(1), {offset})"


TIMES: Mapping[str, tuple[str, ...]] = {
    "to_timestamp": (
        "upper({0})::TIMESTAMP",
        "make_timestamptz(({0} * 1000000::BIGINT)::BIGINT)",
        "{0}::TIMESTAMP",
        "strptime({0}, {1})",
    ),
    "to_timestamp_ltz": (
        "make_timestamptz({0}::BIGINT * CASE {1} WHEN 0 THEN 1000000 WHEN 3 THEN 1000 ELSE 1 END)",
        "make_timestamptz({0} * 1000)",
        "{0}::TIMESTAMP::TIMESTAMPTZ",
    ),
    "to_date": ("{0}::DATE", "strptime({0}, {1})::DATE"),
    "dateadd": ("(({2} + 0) + ({1} || ' ' || {0})::INTERVAL)::DATE", "({2} + ({1} || ' ' || {0})::INTERVAL)"),
    **dict.fromkeys(
        ("strftime", "to_char"),
        (
            "strftime({0}, {1})",
            "strftime(DATE '1970-01-01' + ({0} - INTERVAL 0 SECOND), {1})",
            "strftime(upper({0})::TIMESTAMP, {1})",
            _in_zone("timezone('UTC', {0})"),
        ),
    ),
    "from_unixtime": (
        "strftime(make_timestamp({0}::BIGINT * 1000000), '%Y-%m-%d %H:%M:%S')",
        "strftime(make_timestamp({0}::BIGINT * 1000000), {1})",
    ),
    "unix_timestamp": ("floor(epoch({0}::TIMESTAMPTZ))::BIGINT", "floor(epoch(strptime({0}, {1})))::BIGINT"),
    "moved": ("({0} + to_microseconds({1}::BIGINT))",),
    "moved_by_months": ("({0} + to_months(1) * {1})",),
    "add_months": (
        "(({0} - 0) + to_months({1}::INTEGER))::DATE",
        "({0} + to_months({1}::INTEGER))",
        "(upper({0})::TIMESTAMP + to_months({1}::INTEGER))::DATE",
    ),
    "date_add": ("({0} + {1})", "({0}::DATE + {1}::INTEGER)"),
    "date_sub": (
        "date_sub({0}, {1}, {2})",
        "({0} - {1})",
        "({0}::DATE - {1}::INTEGER)",
        "(({2} - 0) - ({1} || ' ' || {0})::INTERVAL)::DATE",
        "({2} - ({1} || ' ' || {0})::INTERVAL)",
    ),
    "date_diff": (
        "date_diff({0}, {1}, {2})",
        "date_diff('day', {1}, {0})",
        "date_diff('day', upper({1})::TIMESTAMP, upper({0})::TIMESTAMP)",
        "date_diff({0}, upper({1})::TIMESTAMP, upper({2})::TIMESTAMP)",
    ),
    "timestampadd": ("({2} + ({1} || ' ' || {0})::INTERVAL)",),
    "stringtotimestamp": (
        f"epoch_ms(strptime({_ZULU}, {{1}}))",
        f"epoch_ms(timezone({{2}}, strptime({_ZULU}, {{1}})))",
    ),
    "timestamptostring": (
        "strftime(make_timestamp_ms({0}), {1})",
        _in_zone("make_timestamptz({0} * 1000)"),
    ),
    "timestampsub": ("({2} - ({1} || ' ' || {0})::INTERVAL)",),
    "datetostring": ("strftime(DATE '1970-01-01' + {0}::INTEGER, {1})",),
    "stringtodate": ("date_diff('day', DATE '1970-01-01', strptime({0}, {1})::DATE)",),
}
