"""Texts, counted in code points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
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
    if length is None:
        return _slice(max(start, 1) - 1)
    return _slice(max(start, 1) - 1, max(start + length, 1) - 1)


def _left(call: Call, count: int) -> OnColumn:
    return _slice(0, count)


def _right(call: Call, count: int) -> OnColumn:
    return _slice(-count) if count else _slice(0, 0)


def _replacing(call: Call, old: str, new: str) -> OnColumn:
    # Arrow never comes to an end with an empty pattern.
    return arrow("replace_substring", pc.ReplaceSubstringOptions(old, new)) if old else lambda texts: texts


def _matching(name: str) -> Callable[[Call, str], OnColumn]:
    return lambda call, pattern: arrow(name, pc.MatchSubstringOptions(pattern))


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


def _position(call: Call, part: str) -> OnColumn:
    find = arrow("find_substring", pc.MatchSubstringOptions(part))
    before = pc.SplitPatternOptions(part, max_splits=1) if part else None

    def kernel(texts: pa.Array) -> pa.Array:
        places = find(texts).cast(pa.int64())
        if before is None or pc.all(pc.string_is_ascii(texts)).as_py() is not False:
            return pc.add(places, 1)
        pieces = pc.list_element(pc.call_function("split_pattern", [texts], before), 0)
        counted = pc.add(pc.utf8_length(pieces).cast(pa.int64()), 1)
        return pc.if_else(pc.less(places, 0), pa.scalar(0, pa.int64()), counted)

    return kernel


def _split_part(call: Call, separator: str, position: int) -> OnColumn:
    if not separator:
        return (lambda texts: texts) if position in (1, -1) else _blank
    if position == 0:
        return _blank
    options = pc.SplitPatternOptions(separator, max_splits=position if position > 0 else None)

    def kernel(texts: pa.Array) -> pa.Array:
        pieces = pc.call_function("split_pattern", [texts], options)
        starts, ends = np.asarray(pieces.offsets)[:-1], np.asarray(pieces.offsets)[1:]
        places = starts + (position - 1) if position > 0 else ends + position
        found = pieces.values.take(pa.array(places, mask=(places >= ends) | (places < starts)))
        return pc.if_else(texts.is_valid(), found.fill_null(""), pa.scalar(None, pa.string()))

    return kernel


def _blank(texts: pa.Array) -> pa.Array:
    return _slice(0, 0)(texts)


def _padding(on_left: bool) -> Callable[..., OnColumn]:
    def build(call: Call, length: int, fill: str = " ") -> OnColumn:
        cut = _slice(0, max(length, 0))

        def kernel(texts: pa.Array) -> pa.Array:
            missing = np.maximum(length - pc.utf8_length(texts).fill_null(0).to_numpy().astype(np.int64), 0)
            sizes, which = np.unique(missing, return_inverse=True)
            fills = [(fill * (size // max(len(fill), 1) + 1))[:size] for size in sizes.tolist()]
            padding = pa.array(fills, pa.string()).take(pa.array(which))
            kept = cut(texts)
            return _joined(padding, kept) if on_left else _joined(kept, padding)

        return kernel

    return build


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
    "left": with_parameters(_left),
    "right": with_parameters(_right),
    "replace": with_parameters(_replacing),
    "starts_with": with_parameters(_matching("starts_with")),
    "ends_with": with_parameters(_matching("ends_with")),
    "contains": with_parameters(_matching("match_substring")),
    "regexp_matches": with_parameters(_matching_expression),
    "like": with_parameters(_like(ignore_case=False)),
    "ilike": with_parameters(_like(ignore_case=True)),
    "strpos": with_parameters(_position),
    "split_part": with_parameters(_split_part),
    "lpad": with_parameters(_padding(on_left=True)),
    "rpad": with_parameters(_padding(on_left=False)),
}
