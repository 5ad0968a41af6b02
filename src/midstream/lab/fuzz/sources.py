"""Random sources of a FROM clause: streams under windows, each with a name of its own."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.lab.fuzz.choices import Choices
from midstream.lab.fuzz.expressions import Value
from midstream.lab.fuzz.streams import StreamSpec, TimeSpec

BOUNDED = ("range", "now", "hop", "tumble", "cumulate", "session")
ENDLESS = ("unbounded", "rows", "partitioned_rows", "valid_until")
OFTEN = (
    *["range"] * 4,
    "now",
    *["hop"] * 2,
    "tumble",
    *["unbounded"] * 2,
    "rows",
    "partitioned_rows",
    "cumulate",
    "session",
    "valid_until",
)
HOPS = ("hop", "tumble", "cumulate")


@dataclass(frozen=True)
class WindowChoice:
    """A window as drawn; amounts are in drawn time, not in ticks."""

    form: str
    size: int = 0
    slide: int = 1
    offset: int = 0
    zone: str | None = None
    count: int = 0
    by: tuple[str, ...] = ()
    bounds: bool = False

    def cql(self, time: TimeSpec) -> str:
        """The window in brackets; nothing for a raw stream."""
        match self.form:
            case "raw":
                return ""
            case "range":
                return f" [RANGE {time.duration(self.size)}]"
            case "valid_until":
                end = f"ts + {'' if time.is_integer else 'INTERVAL '}{time.duration(self.size)}"
                return f" [VALID UNTIL CASE WHEN k IS NOT NULL THEN {end} END]"
            case "rows" | "partitioned_rows":
                slide = f" SLIDE {self.slide}" if self.slide > 1 else ""
                return f" [{self._partition()}ROWS {self.count}{slide}]"
            case "session":
                return f" [{self._partition()}SESSION {time.duration(self.size)}]"
            case "hop" | "cumulate":
                word, slide = self.form.upper(), time.duration(self.slide)
                return f" [{word} {time.duration(self.size)}, {slide}{self._grid(time)}]"
            case "tumble":
                return f" [TUMBLE {time.duration(self.size)}{self._grid(time)}]"
            case _:
                return f" [{self.form.upper()}]"

    def _partition(self) -> str:
        return f"PARTITION BY {', '.join(self.by)} " if self.by else ""

    def _grid(self, time: TimeSpec) -> str:
        offset = f" OFFSET {time.duration(self.offset)}" if self.offset else ""
        return offset + (f" ZONE '{self.zone}'" if self.zone else "")


@dataclass(frozen=True)
class Leaf:
    """A windowed stream in a query; `alias` is unique within the query, and names its content in DuckDB."""

    alias: str
    stream: StreamSpec
    window: WindowChoice


@dataclass(frozen=True)
class Source:
    """An entry of FROM in both languages, and its columns."""

    cql: str
    sql: str
    columns: tuple[Value, ...]


def draw_window(
    choices: Choices, stream: StreamSpec, constructs: frozenset[str], forms: tuple[str, ...]
) -> WindowChoice:
    """A window of one of the allowed forms."""
    bounds = "bounds" in constructs and choices.chance(3)
    form = choices.choose([f for f in OFTEN if f in forms and f in constructs] or ["now"])
    match form:
        case "range" | "valid_until":
            return WindowChoice(form, size=choices.integer(1, 25))
        case "rows" | "partitioned_rows":
            by = choices.some([c.name for c in stream.columns], 1, 2) if form == "partitioned_rows" else ()
            slide = choices.integer(1, 3) if "slide" in constructs and choices.flag() else 1
            return WindowChoice(form, slide=slide, count=choices.integer(1, 4 - bool(by)), by=tuple(by))
        case "session":
            by = choices.some([c.name for c in stream.columns], 0, 2)
            return WindowChoice(form, choices.integer(1, 12), by=tuple(by), bounds=bounds)
        case "hop" | "tumble" | "cumulate":
            slide = choices.integer(1, 12)
            size = slide if form == "tumble" else choices.integer(slide, 20)
            if form == "cumulate":
                size = slide * choices.integer(2, 3)
            offset = choices.integer(1, 15) if "offset" in constructs and choices.flag() else 0
            zoned = "zone" in constructs and not stream.time.is_integer and choices.chance(4)
            return WindowChoice(form, size, slide, offset, "Asia/Kolkata" if zoned else None, bounds=bounds)
        case _:
            return WindowChoice(form)


def leaf_source(leaf: Leaf) -> Source:
    """A windowed stream in FROM; in DuckDB the table of the window's content, by the leaf's alias."""
    cql = f"{leaf.stream.name}{leaf.window.cql(leaf.stream.time)} AS {leaf.alias}"
    names = [(f"{leaf.alias}.ts", "time"), *((f"{leaf.alias}.{c.name}", c.kind) for c in leaf.stream.columns)]
    if leaf.window.bounds:
        names += [(f"{leaf.alias}.window_start", "time"), (f"{leaf.alias}.window_end", "time")]
    return Source(cql, leaf.alias, tuple(Value(name, name, kind) for name, kind in names))
