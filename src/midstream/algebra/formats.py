"""Formats of dates as other systems write them, in the directives of strftime.

`yyyy-MM-dd HH:mm` is Java's (Spark, Flink, ksqlDB), `YYYY-MM-DD HH24:MI` PostgreSQL's; with a % it is strftime's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from midstream.errors import QueryError

FORMATTED = frozenset({"to_char", "to_timestamp", "to_date", "from_unixtime", "unix_timestamp"}) | {
    *("parse_time", "stringtotimestamp", "timestamptostring", "datetostring", "stringtodate")
}
"""Functions whose later arguments are formats of dates."""

_JAVA: Mapping[str, str] = {
    **dict.fromkeys(("yyyy", "uuuu", "y"), "%Y"),
    "yy": "%y",
    **{"MMMM": "%B", "MMM": "%b", "MM": "%m", "M": "%-m", "dd": "%d", "d": "%-d", "DDD": "%j", "D": "%-j"},
    **{"HH": "%H", "H": "%-H", "hh": "%I", "h": "%-I", "mm": "%M", "m": "%-M", "ss": "%S", "s": "%-S", "a": "%p"},
    **{"SSSSSSSSS": "%n", "SSSSSS": "%f", "SSS": "%g", "SS": "%g", "S": "%g", "EEEE": "%A", "EEE": "%a", "E": "%a"},
    **{"XXX": "%z", "XX": "%z", "X": "%z", "Z": "%z", "VV": "%Z", "z": "%Z"},
}

_POSTGRES: dict[str, str] = {
    **{"YYYY": "%Y", "YY": "%y", "MONTH": "%B", "MON": "%b", "MM": "%m", "DDD": "%j", "DD": "%d", "DAY": "%A"},
    **{"DY": "%a", "HH24": "%H", "HH12": "%I", "HH": "%I", "MI": "%M", "SS": "%S", "MS": "%g", "US": "%f"},
    **{"AM": "%p", "PM": "%p", "IW": "%V", "IYYY": "%G", "TZH:TZM": "%z", "TZ": "%Z"},
    **{"FMMM": "%-m", "FMDD": "%-d", "FMDDD": "%-j", "FMDAY": "%A", "FMMONTH": "%B", "FMYYYY": "%Y"},
    **{"FMHH24": "%-H", "FMHH12": "%-I", "FMHH": "%-I", "FMMI": "%-M", "FMSS": "%-S"},
}

_NAMES = frozenset({"%A", "%a", "%B", "%b"})

_UNKNOWN = (
    "FM TM RM SSSSS SSSS Y,YYY YYY Y IYY IY I IDDD ID CC WW W Q J D FF BC AD A.D. B.C. A.M. P.M. OF TZH TZM SP ST ND RD"
)
"""What means something in PostgreSQL's formats, and nothing here."""


def directives(form: str, shows: bool = False) -> str:
    """A format as strftime and strptime read it; where it shows names, in the letters that are asked for.

    >>> directives("yyyy-MM-dd'T'HH:mm:ss.SSS")
    '%Y-%m-%dT%H:%M:%S.%g'
    >>> directives("YYYY-MM-DD HH24:MI")
    '%Y-%m-%d %H:%M'
    >>> directives("yyyy-mm-dd hh24:mi"), directives("Day"), directives("mm:ss")
    ('%Y-%m-%d %H:%M', '%A', '%M:%S')
    """
    if "%" in form:
        return form
    if re.search(r"YYYY|DD(?!D)|(?i:HH24|HH12|MI\b|\b(?:FM)?(?:DAY|MONTH|MON|DY)\b)", form):
        known = dict.fromkeys(_UNKNOWN.split(), "") | _POSTGRES
        return _translated(form, known, '"', re.IGNORECASE, _NAMES if shows else frozenset())
    return _translated(form, _JAVA, "'", 0)


def _translated(
    form: str, known: Mapping[str, str], quote: str, flags: int, capitalised: frozenset[str] = frozenset()
) -> str:
    words = "|".join(re.escape(word) for word in sorted(known, key=len, reverse=True))
    pattern = re.compile(rf"{quote}(?P<text>[^{quote}]*){quote}|(?P<word>{words})", flags)

    def directive(found: re.Match[str]) -> str:
        if found["word"] is None:
            return found["text"] or quote
        made = known.get(found["word"]) or known[found["word"].upper()]
        name = found["word"].removeprefix("FM")
        if made in capitalised and name != name.capitalize():
            raise QueryError(f"{name} shows letters as they are not in names", hint=f"write upper() or {name.title()}")
        if not made:
            raise QueryError(
                f"{found['word']} is not read in a format", hint="write directives of strftime: '%Y-%m-%d'"
            )
        return made

    return pattern.sub(directive, form)
