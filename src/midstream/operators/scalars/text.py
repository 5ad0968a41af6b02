"""Texts, counted in code points."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.expressions import Call
from midstream.errors import InputError
from midstream.operators.scalars.kernels import Datum, Kernel, Maker, OnColumn, always, arrow, with_parameters


def _cased(ascii_kernel: str, python: Callable[[str], str]) -> Kernel:
    """Changing case: Arrow's way where every letter is ASCII, else Unicode's full rules, once per distinct text."""
    fast = arrow(ascii_kernel)

    def kernel(texts: pa.Array) -> pa.Array:
        if pc.all(pc.string_is_ascii(texts)).as_py() is not False:
            return fast(texts)
        encoded = texts.dictionary_encode()
        distinct = pa.array([python(text) for text in encoded.dictionary.to_pylist()], pa.string())
        return distinct.take(encoded.indices)

    return kernel


def _joined(*texts: Datum) -> Datum:
    return pc.binary_join_element_wise(*texts, "", null_handling="emit_null")


def _concatenated(*texts: Datum) -> Datum:
    # Arrow's own way of skipping nulls gives no value at all for a row that has nothing else.
    return _joined(*[pc.coalesce(text, "") for text in texts])


def _slice(start: int, stop: int | None = None) -> OnColumn:
    return arrow("utf8_slice_codeunits", pc.SliceOptions(start=start, stop=stop))


def _substring(call: Call, start: int, length: int | None = None) -> OnColumn:
    if start >= 0:
        return _slice(max(start, 1) - 1, None if length is None else max(start + length, 1) - 1)
    tail, head = _slice(start), _slice(0, None if length is None else max(length, 0))
    return lambda texts: head(tail(texts))


def _matching(name: str) -> Callable[[Call, str], OnColumn]:
    return lambda call, pattern: arrow(name, pc.MatchSubstringOptions(pattern))


def _replacing(call: Call, old: str, new: str) -> OnColumn:
    # Arrow never comes to an end with an empty pattern.
    return arrow("replace_substring", pc.ReplaceSubstringOptions(old, new)) if old else lambda texts: texts


def _like(ignore_case: bool) -> Callable[[Call, str], OnColumn]:
    def build(call: Call, pattern: str) -> OnColumn:
        # To Arrow a backslash is an escape, to the language a letter.
        literal = pattern.replace("\\", "\\\\")
        return arrow("match_like", pc.MatchSubstringOptions(literal, ignore_case=ignore_case))

    return build


def _matching_expression(call: Call, pattern: str) -> OnColumn:
    match = arrow("match_substring_regex", pc.MatchSubstringOptions(pattern))

    def kernel(texts: pa.Array) -> pa.Array:
        try:
            return match(texts)
        except pa.ArrowInvalid as problem:
            raise InputError(f"{pattern!r} is not a regular expression", detail=str(problem)) from None

    return kernel


_SPACES = pc.TrimOptions(" ")

TEXT: dict[str, Maker] = {
    "||": always(_joined),
    "concat": always(_concatenated),
    "upper": always(_cased("ascii_upper", str.upper)),
    "lower": always(_cased("ascii_lower", str.lower)),
    "length": always(arrow("utf8_length")),
    "trim": always(arrow("utf8_trim", _SPACES)),
    "ltrim": always(arrow("utf8_ltrim", _SPACES)),
    "rtrim": always(arrow("utf8_rtrim", _SPACES)),
    "reverse": always(arrow("utf8_reverse")),
    "substring": with_parameters(_substring),
    "left": with_parameters(lambda call, count: _slice(0, count)),
    "right": with_parameters(lambda call, count: _slice(-count) if count else _slice(0, 0)),
    "replace": with_parameters(_replacing),
    "starts_with": with_parameters(_matching("starts_with")),
    "ends_with": with_parameters(_matching("ends_with")),
    "contains": with_parameters(_matching("match_substring")),
    "regexp_matches": with_parameters(_matching_expression),
    "like": with_parameters(_like(ignore_case=False)),
    "ilike": with_parameters(_like(ignore_case=True)),
}
