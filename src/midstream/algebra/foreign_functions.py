"""What other systems write: functions that mean something else than those of their names here, clauses, statements."""

from __future__ import annotations

import re
from collections.abc import Mapping

_FLINK = {
    "DAYOFWEEK/1": "(dayofweek(…) + 1)",
    "REGEXP_REPLACE/3": "regexp_replace(…, 'g')",
    "LOG/1": "ln(…)",
    "STR_TO_MAP/1": "str_to_map(…, ',', '=')",
    "CONCAT": "((…) || (…))",
}

_SPARK = {
    "WEEKDAY/1": "(isodow(…) - 1)",
    "REGEXP_EXTRACT/2": "regexp_extract(…, 1)",
    "REGEXP_EXTRACT_ALL/2": "regexp_extract_all(…, 1)",
    "SPLIT/2": "string_split_regex(…)",
    "URL_ENCODE/1": "url_encode_param(…)",
    "URL_DECODE/1": "url_decode_param(…)",
    "SEQUENCE/2": "series_either_way(…)",
    "SORT_ARRAY/1": "list_sort(…, 'ASC', 'NULLS FIRST')",
    "MAP": "map_of(…)",
    "STR_TO_MAP/1": "str_to_map(…, ',', ':')",
    "STR_TO_MAP/2": "str_to_map(…, ':')",
    "SUBSTRING/3": "substring_from(…)",
    "SUBSTR/3": "substring_from(…)",
}

_RISINGWAVE = {
    "GENERATE_SERIES": "unnest(generate_series(…))",
    "REGEXP_MATCHES/2": "regexp_matches(…, 'g')",
    "REGEXP_MATCHES/3": "unnest(regexp_matches_all(…))",
    "UNNEST/1": "unnest(list_flat(…))",
    "FORMAT": "printf(…)",
    **{f"{name}/2": f"nanvl({name.lower()}(…), NULL)" for name in ("REGR_SLOPE", "REGR_INTERCEPT", "REGR_R2", "CORR")},
    "STRING_TO_ARRAY": "text_to_list(…)",
    **{name: f"{name.lower()}(shown_text(…), shown_text(…))" for name in ("CONCAT", "CONCAT_WS")},
    **{f"{name}/{n}": "substring_within(…)" for name in ("SUBSTR", "SUBSTRING") for n in (2, 3)},
}

_KSQLDB = {
    "CAST": "TRY_CAST(…)",
    "COUNT/0": "count(*)",
    "ARRAY_LENGTH": "coalesce(array_length(…), 0)",
    **{f"{name}/{n}": "substring_at(…)" for name in ("SUBSTR", "SUBSTRING") for n in (2, 3)},
    "GENERATE_SERIES/2": "series_either_way(…)",
    "ENTRIES": "list_transform(entries(…), e -> {'K': e.key, 'V': e.value})",
    "AS_MAP": "map_of_lists(…)",
    "ROUND": "round_up(…)",
    "TRUNC/1": "CAST(trunc(…) AS BIGINT)",
    **{name: "log_or_nan(…)" for name in ("LN", "LOG")},
    **{name: f"{name.lower()}_or_nan(…)" for name in ("SQRT", "ACOS", "ASIN")},
    "COT": "cot_or_infinite(…)",
    "SLICE": "list_from_to(…)",
    "ARRAY_JOIN/1": "array_to_string(…, ',', 'null')",
    "ARRAY_JOIN/2": "array_to_string(…, 'null')",
    "REGEXP_REPLACE/3": "regexp_replace(…, 'g')",
    "REGEXP_EXTRACT": "regexp_found(…)",
    "REGEXP_EXTRACT_ALL": "regexp_found_all(…)",
    "TRIM": r"regexp_replace(…, '^[\x00-\x20]+|[\x00-\x20]+$', '', 'g')",
    "INITCAP": "initcap_of_words(…)",
    "MASK/1": "mask_left(…, 1000000)",
    "URL_EXTRACT_PATH": "url_path(…)",
    "FROM_UNIXTIME": "(TIMESTAMP '1970-01-01' + INTERVAL '1' MILLISECOND * (…))",
    "UNIX_TIMESTAMP/1": "epoch_ms(…)",
    "COLLECT_LIST": "array_agg(…)",
    "COLLECT_SET": "array_distinct(array_agg(…))",
    "HISTOGRAM": "histogram(CAST(… AS TEXT))",
    **{name: f"coalesce({name.lower()}(…), 0)" for name in ("SUM", "AVG", "STDDEV_SAMP", "STDDEV_SAMPLE")},
    "CORRELATION": "coalesce(corr(…), CAST('NaN' AS DOUBLE))",
}

FOREIGN_FUNCTIONS: Mapping[str, Mapping[str, str]] = {
    "flink": _FLINK | {"AVG/1": "avg_whole(…)", "UNNEST": "inline(…)"},
    "ksqldb": _KSQLDB,
    "risingwave": _RISINGWAVE,
    "spark": _FLINK | _SPARK,
}
"""By dialect, what is written for calls of so many arguments, `…`; with what is between two of these between them."""

WINDOWS = {"TUMBLE": "TUMBLE", "HOP": "HOP", "CUMULATE": "CUMULATE", "SESSION": "SESSION", "WINDOW": "TUMBLE"} | {
    "SESSION_WINDOW": "SESSION"
}
"""Functions that say into which windows rows fall, and the window that each is."""

NULLS_FIRST = {"flink": "ASC", "spark": "ASC", "risingwave": "DESC", "ksqldb": ""}
"""The direction of ORDER BY in which nulls come first."""

SUFFIXES = {"D": "DOUBLE '{}'", "F": "FLOAT '{}'", "BD": "DECIMAL '{}'"}
"""Numbers of Spark with a letter behind them that says their type; others are whole."""

TIGHTNESS = {"|": 1, "^": 2, "&": 3, "<<": 4, ">>": 4, "||": 5}
"""How tight operators of Spark bind that bind alike here."""

WINDOW_TIME = "window_end - INTERVAL '1' MILLISECOND"

BOUNDS = {
    f"{word}_{end}": text
    for word in ("TUMBLE", "HOP", "SESSION")
    for end, text in (("START", "window_start"), ("END", "window_end"), ("ROWTIME", WINDOW_TIME))
} | {"WINDOW_TIME": WINDOW_TIME}
"""What the bounds of windows are called there, and here."""

AS_STRUCT = "{'start': window_start, 'end': window_end}"
"""The bounds of a window as Spark has them."""

BEHIND = {"TUMBLING": "TUMBLE({time}, {0})", "HOPPING": "HOP({time}, {1}, {0})", "SESSION": "SESSION({time}, {0})"}
"""Windows behind a stream of ksqlDB as keys of GROUP BY, of the amounts of time that they say."""

CASTS = {"STRING": "iso_text", "VARCHAR": "iso_text", "DATE": "iso_date", "TIMESTAMP": "iso_timestamp"}
"""What casts to a type are in ksqlDB, where they read and write times as ISO 8601 does, and parts of them."""

CLAUSES = ("WINDOW", "WHERE", "GROUP", "HAVING", "LIMIT")
"""What stands behind FROM in ksqlDB."""

MADE = re.compile(
    r"""(?:CREATE\s.*?\b(?:STREAM|TABLE|VIEW|SINK)\s+(?:IF\s+NOT\s+EXISTS\s+)?|INSERT\s+INTO\s+)
    ("[^"]+"|`[^`]+`|[\w.]+).*?(?:\bAS\s+(?=\(|SELECT\b|WITH\b|VALUES\b)|\b(?=SELECT\b|WITH\s+\w+\s+AS\b))""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
"""What stands before a query whose rows go somewhere."""

PLACED = re.compile(
    r"\s+PARTITION\s+BY\b.*?(?=\s+EMIT\b|\s+LIMIT\b|\s*$)|\s+EMIT\s+(?:CHANGES|FINAL)\b", re.IGNORECASE | re.DOTALL
)
"""What ksqlDB says behind a query of where its rows go, and when."""

DECLARED = re.compile(r"CREATE\s.*?\b(?:STREAM|TABLE)\s+(?:IF\s+NOT\s+EXISTS\s+)?(\w+)\s*\(", re.IGNORECASE)
"""What begins to say which columns there are."""

VERSIONED = re.compile(r"\b(\w+)(?=\s+FOR\s+SYSTEM_TIME\s+AS\s+OF\s+PROCTIME\b)", re.IGNORECASE)
"""A table of which the rows of now are wanted."""

NOT_HERE = {
    re.compile(
        r"\bWATERMARK\s+FOR\s+`?(\w+)`?(?:\s+AS\s+`?\w+`?\s*-\s*INTERVAL\s+'?(\w+)'?\s+(\w+))?", re.IGNORECASE
    ): (
        "WATERMARK FOR is said of a stream, not in a query",
        "how late rows may come is known before any query reads them",
        'declare the stream with time = "{0}" and lateness = "{1} {2}"',
    ),
    re.compile(
        r"\bwindow_(?:start|end)\s*(?:=\s*(?:\w+\.)?window_(?:start|end)\s*[-+]\s*INTERVAL\b"
        r"|[-+]\s*INTERVAL\s*'[^']*'(?:\s*\w+)?\s*=\s*(?:\w+\.)?window_(?:start|end)\b)",
        re.IGNORECASE,
    ): (
        "windows of different times are never there at once, so their rows never meet",
        "a row of a window is there for as long as its window",
        "join what is kept for longer, FROM stream [UNBOUNDED], by time_bucket(INTERVAL '10' MINUTE, time)",
    ),
}
"""What texts of other systems say that cannot be said in a query here: why not, and what to do."""

LAST_CONDITION = re.compile(r".*\bON\s+(.*?)\s*=\s*(.*?)\s*(?:\b(?:WHERE|GROUP\s+BY)\b.*)?$", re.IGNORECASE | re.DOTALL)
"""What two sides of the last join are equal in."""

_AFTER_ORDER = "ROWS RANGE GROUPS LIMIT OFFSET FETCH UNION EXCEPT INTERSECT MEASURES"

AFTER_ORDER = frozenset({*_AFTER_ORDER.split(), *";]),", ""})
"""What may stand behind a key of ORDER BY."""
