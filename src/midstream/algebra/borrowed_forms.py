"""Forms of SQL that functions of other systems are in DuckDB, where they take more than a line."""

from __future__ import annotations

QUANTIFIED = {"=": "equal", "<>": "unequal", "<": "less", "<=": "at_most", ">": "greater", ">=": "at_least"} | {
    word: word for word in ("like", "ilike")
}
"""How a comparison with any or all elements of a list is called: `any_equal`, `all_less` and so on."""


def decided(word: str, truths: str) -> str:
    """Whether any or all of a list of truths hold, in SQL; null if those that are unknown could decide it."""
    enough, otherwise = ("TRUE", "FALSE") if word == "any" else ("FALSE", "TRUE")
    return (
        f"CASE WHEN {truths} IS NULL THEN NULL WHEN list_contains({truths}, {enough}) THEN {enough}"
        f" WHEN len(list_filter({truths}, lambda t: t IS NULL)) > 0 THEN NULL ELSE {otherwise} END"
    )


def quantified(symbol: str, word: str) -> str:
    """Whether a comparison holds with any or all elements of a list."""
    return decided(word, f"list_transform({{1}}, lambda e: {{0}} {symbol} e)")


CHOSEN = tuple(f"CASE {{0}} {' '.join(f'WHEN {i} THEN {{{i}}}' for i in range(1, n))} END" for n in range(2, 10))

DECODED = tuple(
    f"CASE {' '.join(f'WHEN {{0}} IS NOT DISTINCT FROM {{{i}}} THEN {{{i + 1}}}' for i in range(1, n - 1, 2))}"
    f"{'' if n % 2 else f' ELSE {{{n - 1}}}'} END"
    for n in range(3, 10)
)
"""A value, others that it may be equal to, each with what is taken then, and what is taken else."""

PLAIN = r"regexp_replace({1}, '\\.|\[\^?\]?[^\]]*\]', '', 'g')"

GROUPS = " ".join(
    f"{sign} len(regexp_extract_all({PLAIN}, '{paren}'))"
    for sign, paren in (("", r"\("), ("-", r"\(\?"), ("+", r"\(\?P?<\w"))
)
"""How many groups a regular expression has."""


def match(pattern: str) -> str:
    """The groups of the first match, or the whole of it if there are none; null without a match."""
    groups = ", ".join(f"regexp_extract({{0}}, {pattern}, {i})" for i in range(1, 10))
    return (
        f"CASE WHEN regexp_matches({{0}}, {pattern}) IS DISTINCT FROM TRUE THEN NULL"
        f" WHEN {GROUPS} = 0 THEN [regexp_extract({{0}}, {pattern})]"
        f" WHEN {GROUPS} > 9 THEN error('regexp_match takes 9 groups at most') ELSE [{groups}][1:{GROUPS}] END"
    )


def matches(pattern: str) -> str:
    """The groups of each match, or the whole of each if there are none."""
    padded = f"'(?:' || {pattern} || '){'()' * 9}'"
    groups = ", ".join(f"regexp_extract_all({{0}}, {padded}, {i})[n]" for i in range(1, 10))
    every = f"generate_series(1, len(regexp_extract_all({{0}}, {pattern})))"
    return (
        f"CASE WHEN {GROUPS} = 0 THEN list_transform(regexp_extract_all({{0}}, {pattern}), lambda m: [m])"
        f" WHEN {GROUPS} > 9 THEN error('regexp_matches takes 9 groups at most')"
        f" ELSE list_transform({every}, lambda n: [{groups}][1:{GROUPS}]) END"
    )


def held(whole: str, part: str) -> str:
    """Whether JSON holds other JSON at its top, as PostgreSQL says: fields by their names, elements in any order.

    DuckDB looks for it at every depth, so both are put under a name that nothing else has.
    """
    whole, part = f"ltrim({whole})", f"ltrim({part})"  # which takes nothing but texts
    alone = f"json_type({whole}) = 'ARRAY' AND json_type({part}) NOT IN ('ARRAY', 'OBJECT')"
    sides = f"json_object('@>', {whole}::JSON), json_object('@>', CASE WHEN {alone} THEN json_array({part}::JSON)"
    return f"json_contains({sides} ELSE {part}::JSON END))"


def series(name: str) -> tuple[str, ...]:
    """Numbers or times up to another one, in steps that lead somewhere."""
    some = "CASE WHEN sign({2}) = 0 THEN error('a series cannot go on in steps of 0') ELSE {2} END"
    return (f"{name}({{0}})", f"{name}({{0}}, {{1}})", f"{name}({{0}}, {{1}}, {some})", f"{name}({{0}}, {{1}}, {{2}})")


def masked(text: str, others: str = "-") -> str:
    """A text with a letter in the place of each of its kind, and of all others if they are hidden too."""
    for kind, letter in (("[^A-Za-z0-9]", others), ("[A-Z]", "X"), ("[a-z]", "x"), ("[0-9]", "n")):
        text = f"regexp_replace({text}, '{kind}', '{letter}', 'g')" if letter else text
    return text


_SOUNDS = "'ABCDEFGHIJKLMNOPQRSTUVWXYZ', '01230120022455012623010202'"

_CODES = (
    f"translate(upper({{0}})[1], {_SOUNDS}) || translate(regexp_replace(upper({{0}})[2:], '[HW]', '', 'g'), {_SOUNDS})"
)

_APART = f"list_reduce(range(1, 7), lambda a, d: regexp_replace(a, d || '+', d::VARCHAR, 'g'), {_CODES})"


def pairs(extract: str) -> str:
    """The keys of an object in JSON, or the places in a list, each with the value there."""
    others = "CASE WHEN {0} IS NOT NULL THEN error('only objects and lists have keys') END"
    listed = "range(json_array_length({0})::BIGINT)::VARCHAR[]"
    keys = f"CASE json_type({{0}}) WHEN 'OBJECT' THEN json_keys({{0}}) WHEN 'ARRAY' THEN {listed} ELSE {others} END"
    path = "CASE json_type({0}) WHEN 'ARRAY' THEN '$[' || k || ']' ELSE '$.\"' || k || '\"' END"
    return f"list_transform({keys}, lambda k: {{'key': k, 'value': {extract}({{0}}, {path})}})"


SOUNDEX = (
    "CASE WHEN regexp_matches({0}, '^[A-Za-z]') THEN upper({0})[1] ||"
    f" rpad(regexp_replace(({_APART})[2:], '[^1-6]', '', 'g'), 3, '0') ELSE {{0}} END"
)
"""How a name sounds: its first letter and the codes of three consonants; H and W do not part equal ones."""

_DIGITS = "list_transform(string_split(upper({0}), ''), lambda c: instr('0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ', c) - 1)"

CONVERTED = (
    f"CASE WHEN list_bool_and(list_transform({_DIGITS}, lambda d: d BETWEEN 0 AND {{1}} - 1)) THEN"
    f" to_base(list_reduce({_DIGITS}, lambda a, d: a * {{1}} + d, 0::BIGINT), {{2}}::INTEGER)"
    " ELSE error('conv takes digits of its base') END"
)
"""A whole number that is written in one base, in another."""


def found(text: str, part: str, start: str, nth: str = "1") -> str:
    """The place where a part occurs for the nth time from a place on, or 0; backwards from one counted from the end."""
    places = f"generate_series({start}::BIGINT, len({text}))"
    back = f"generate_series(len({text}) + {start}::BIGINT + 1, 1, -1)"
    return (
        f"CASE WHEN {start} = 0 OR {nth} < 1 THEN error('places and occurrences count from 1') ELSE coalesce("
        f"(list_filter(CASE WHEN {start} > 0 THEN {places} ELSE {back} END,"
        f" lambda i: {text}[i:i + len({part}) - 1] = {part}))[{nth}], len({text} || {part}) * 0) END"
    )


def months_between(a: str, b: str) -> str:
    """As Spark counts them: whole ones between equal days or last days of months, else with parts of 31 days."""
    whole = f"(year({a}) - year({b})) * 12 + month({a}) - month({b})"
    left, right = (f"day({t}) + (hour({t}) * 3600 + minute({t}) * 60 + second({t})) / 86400" for t in (a, b))
    ends = " AND ".join(f"day({t}) = day(last_day({t}))" for t in (a, b))
    return (
        f"CASE WHEN day({a}) = day({b}) OR ({ends}) THEN ({whole})::DOUBLE"
        f" ELSE round({whole} + ({left} - ({right})) / 31, 8) END"
    )


_EXACT = "TRY_CAST(({0})::VARCHAR AS DECIMAL(38, 16))"

HALF_UP = f"({_EXACT} + CASE WHEN {_EXACT} < 0 THEN 0.0000000000000001 ELSE 0 END)"
"""A number whose halves are rounded upwards: below zero it is a little more."""

LOGARITHM = "CASE WHEN {0} > 0 THEN ln({0}) WHEN {0} = 0 THEN '-inf'::DOUBLE WHEN {0} < 0 THEN 'nan'::DOUBLE END"

UNIT = "CASE lower({1}) WHEN 'mm' THEN 'month' WHEN 'yy' THEN 'year' WHEN 'yyyy' THEN 'year' ELSE {1} END"

WEEKDAYS = "list_position(['MO', 'TU', 'WE', 'TH', 'FR', 'SA', 'SU'], upper({1}[1:2]))"

URL = {
    "protocol": r"'^([A-Za-z+.-]+):'",
    "host": r"'^[A-Za-z+.-]+://(?:[^/@]*@)?([^/:?#]+)'",
    "path": r"'^[A-Za-z+.-]+://[^/?#]*(/[^?#]*)'",
    "query": r"'\?([^#]*)'",
    "fragment": "'#(.*)'",
}
"""Parts of addresses."""

PART = " ".join(f"WHEN '{'REF' if p == 'fragment' else p.upper()}' THEN {sql}" for p, sql in URL.items())

PARAMETER = "nullif(regexp_extract({0}, '[?&]' || regexp_escape({1}) || '=([^&#]*)', 1), '')"

AMOUNT = (
    "CASE WHEN date_part('month', {0}::INTERVAL) + date_part('year', {0}::INTERVAL) <> 0"
    " THEN error('months are not all as long: write days') ELSE {0}::INTERVAL END"
)

MADE = (
    "CASE WHEN {0} <> 0 OR {1} <> 0 THEN error('months are not all as long: make_interval takes days')"
    " ELSE to_days(({2} * 7 + {3})::INTEGER) + to_hours({4}) + to_minutes({5}) + to_seconds({6}) END"
)
"""Of years, months, weeks, days, hours, minutes and seconds."""

UTF8 = "lower({1}) IN ('utf-8', 'utf8', 'us-ascii')"

_BYTES = (
    "CASE lower({1}) WHEN 'hex' THEN unhex(regexp_replace({0}, '^(0x|[Xx]'')|''$', '', 'g'))"
    " WHEN 'base64' THEN from_base64({0}) WHEN 'utf8' THEN encode({0})"
    r" WHEN 'ascii' THEN encode(regexp_replace({0}, '[^\x00-\x7F]', '?', 'g')) END"
)

TRANSCODED = (
    f"CASE lower({{2}}) WHEN 'hex' THEN lower(hex({_BYTES})) WHEN 'base64' THEN base64({_BYTES})"
    f" WHEN 'utf8' THEN decode({_BYTES}) WHEN 'ascii' THEN"
    f" array_to_string(list_transform(regexp_extract_all(hex({_BYTES}), '..'),"
    " lambda h: CASE WHEN h < '80' THEN chr(('0x' || h)::INTEGER) ELSE chr(65533) END), '') END"
)
"""A text that is written in one encoding, in another, as ksqlDB does it."""

CODED = (
    r"CASE WHEN regexp_full_match({0}[:99], '\\u[0-9a-fA-F]{4}') THEN chr(('0x' || {0}[3:])::INTEGER)"
    r" WHEN regexp_full_match({0}[:99], '\\u[dD][89abAB]..\\u[dD][c-fC-F]..') THEN"
    " chr((('0x' || {0}[3:6])::INTEGER & 1023) * 1024 + (('0x' || {0}[9:])::INTEGER & 1023) + 65536) END"
)
"""A letter that is written as Java writes it, in one code or two."""

FLAGGED = (
    "('(?' || CASE WHEN regexp_matches({2}, 'i[^c]*$') THEN 'i' ELSE '-i' END || ')'"
    " || coalesce('(?' || nullif(regexp_replace({2}, '[gic]', '', 'g'), '') || ')', '') || {1})"
)
"""A pattern with flags as PostgreSQL has them: of i and c the last one counts."""

_SQL = r"regexp_replace(regexp_replace({1}, '([.$])', '\\\1', 'g'), '(^|[^\[])\^', '\1\\^', 'g')"

MATCHED = (
    r"CASE WHEN contains({1}, '\') THEN error('a pattern of SIMILAR TO has no backslash')"
    f" ELSE regexp_full_match({{0}}, '(?s)' || replace(replace({_SQL}, '%', '.*'), '_', '.')) END"
)
"""Whether a text has a pattern as the SQL standard writes it."""

ISO = "TRY_CAST({{0}} || CASE len({{0}}) WHEN 4 THEN '-01-01' WHEN 7 THEN '-01' ELSE '' END AS {type})"
"""A time of a text that may lack its month and its day."""
