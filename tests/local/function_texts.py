"""Texts of modules that define a function f: what its fingerprint notices, and what it leaves out."""

from __future__ import annotations

import types
from typing import Any

IMPORTS = """
import array, collections, datetime, decimal, enum, fractions, functools, logging, operator, pathlib, re, types, uuid
import dataclasses, random, zoneinfo
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
"""


def defined(text: str, **names: Any) -> Any:
    """The function f of a text, as a module of its own would have it."""
    module = {"__name__": "users", **names}
    exec(compile(IMPORTS + text, "users.py", "exec", dont_inherit=True), module)
    return module["f"]


def module(text: str, name: str = "users.helpers") -> types.ModuleType:
    """A module of a text."""
    made = types.ModuleType(name)
    exec(compile(IMPORTS + text, "helpers.py", "exec", dont_inherit=True), vars(made))
    return made


SCALE = "class Scale:\n    def __init__(self, by): self.by = by\n    def apply(self, x): return x * self.by\n"
SLOTS = SCALE.replace(":\n", ":\n    __slots__ = ('by',)\n", 1).replace("apply", "__call__")
LISTED = "class Scale:\n    def __init__(self, by): self.by = [by]\n    def __call__(self, x): return x * self.by[0]\n"
WRAPPER = """
def doubling(function):
    @functools.wraps(function)
    def wrapper(x): return 2 * function(x)
    return wrapper
"""
COUNTING = """
class Scale:
    def __init__(self, by): self.by, self.calls, self.known = by, 0, {}
    def set_by(self, by): self.by = by
    @functools.cached_property
    def twice(self): return 2 * self.by
    def __call__(self, x):
        self.calls += 1
        self.known[x] = self.twice
        return x * self.by
"""

CONSTANTS = {
    "Decimal": ("decimal.Decimal('1.1')", "decimal.Decimal('1.10')"),
    "Fraction": ("fractions.Fraction(1, 2)", "fractions.Fraction(1, 3)"),
    "date": ("datetime.date(2024, 1, 1)", "datetime.date(2024, 1, 2)"),
    "datetime": ("datetime.datetime(2024, 1, 1)", "datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)"),
    "zone": ("datetime.datetime(2024, 1, 1, tzinfo=zoneinfo.ZoneInfo('UTC'))", "datetime.datetime(2024, 1, 1)"),
    "time": ("datetime.time(1)", "datetime.time(2)"),
    "timedelta": ("datetime.timedelta(1)", "datetime.timedelta(2)"),
    "timezone": ("datetime.UTC", "datetime.timezone(datetime.timedelta(hours=1))"),
    "bytes": ("b'a'", "b'b'"),
    "bytearray": ("bytearray(b'a')", "bytearray(b'b')"),
    "array": ("array.array('i', [1])", "array.array('i', [2])"),
    "set": ("{1, 'a'}", "{1, 'b'}"),
    "frozenset": ("frozenset({'a', (1, 2)})", "frozenset({'a', (1, 3)})"),
    "range": ("range(3)", "range(4)"),
    "regex": ("re.compile('a')", "re.compile('a', re.I)"),
    "method of a regex": ("re.compile('a').match", "re.compile('b').match"),
    "path": ("pathlib.Path('a')", "pathlib.Path('b')"),
    "UUID": ("uuid.UUID(int=1)", "uuid.UUID(int=2)"),
    "large integer": ("10 ** 6000", "10 ** 6000 + 1"),
    "nested": ("{'a': [{'b': (decimal.Decimal(1),)}]}", "{'a': [{'b': (decimal.Decimal(2),)}]}"),
    "deque": ("collections.deque([1])", "collections.deque([2])"),
    "namespace": ("types.SimpleNamespace(a=[1])", "types.SimpleNamespace(a=[2])"),
    "getter": ("operator.itemgetter(1)", "operator.itemgetter(2)"),
    "method of a type": ("str.upper", "str.lower"),
    "builtin": ("max", "min"),
    "partial": ("functools.partial(max, 1)", "functools.partial(max, 2)"),
    "numpy array": ("np.array([1, 2])", "np.array([1, 3])"),
    "numpy type": ("np.array([1, 2], dtype='i4')", "np.array([1, 2], dtype='u4')"),
    "numpy objects": ("np.array([object, 'a'], dtype=object)", "np.array([object, 'b'], dtype=object)"),
    "numpy scalar": ("np.float64(1)", "np.float64(2)"),
    "numpy time": ("np.datetime64('2024-01-01')", "np.datetime64('2024-01-02')"),
    "numpy function": ("np.add", "np.subtract"),
    "Arrow scalar": ("pa.scalar(1)", "pa.scalar(2)"),
    "Arrow array": ("pa.array(['a', None])", "pa.array(['a', 'b'])"),
    "Arrow table": ("pa.table({'a': [1]})", "pa.table({'a': [2]})"),
    "Arrow type": ("pa.int64()", "pa.int32()"),
}

NOTICED = {
    **{
        name: tuple(f"LIMIT = {value}\ndef f(x): return x, LIMIT" for value in pair) for name, pair in CONSTANTS.items()
    },
    "state of a bound method": (SCALE + "f = Scale(2).apply", SCALE + "f = Scale(3).apply"),
    "object in a global": tuple(SCALE + f"s = Scale({by})\ndef f(x): return s.apply(x)" for by in (2, 3)),
    "slots": (SLOTS + "f = Scale(2)", SLOTS + "f = Scale(3)"),
    "list of an object": (LISTED + "f = Scale(2)", LISTED + "f = Scale(3)"),
    "set up by a method that is not called": tuple(COUNTING + f"f = Scale(1); f.set_by({by})" for by in (2, 3)),
    "object with a method called add": tuple(
        SCALE.replace("apply", "add") + f"s = Scale({by})\ndef f(x): return s.add(x)" for by in (2, 3)
    ),
    "cached helper": tuple(f"@functools.cache\ndef g(x): return {r}\ndef f(x): return g(x)" for r in ("x", "-x")),
    "cached": tuple(f"@functools.lru_cache\ndef f(x): return {r}" for r in ("x", "-x")),
    "wrapped": tuple(WRAPPER + f"@doubling\ndef f(x): return {r}" for r in ("x", "-x")),
    "wrapper": tuple(WRAPPER.replace("2", two) + "@doubling\ndef f(x): return x" for two in "23"),
    "partial of a helper": tuple(f"def g(a, x): return {r}\nf = functools.partial(g, 1)" for r in ("a", "x")),
    "Enum": tuple(f"class Rate(enum.Enum):\n    LOW = {r}\ndef f(x): return Rate.LOW.value" for r in "23"),
    "member": tuple(f"class Rate(enum.IntEnum):\n    LOW = {r}\nR = Rate.LOW\ndef f(x): return R" for r in "23"),
    "tuple of a class": tuple(f"class f:\n    L = (1, {r})\n    def iterate(self, s, x): return self.L" for r in "23"),
    "dict of a class": tuple(
        f"class f:\n    L = {{'a': {r}}}\n    def iterate(self, s, x): return self.L" for r in "23"
    ),
    "property": tuple(f"class f:\n    @property\n    def k(self): return {r}" for r in "23"),
    "cached_property": tuple(f"class f:\n    @functools.cached_property\n    def k(self): return {r}" for r in "23"),
    "dataclass": tuple(f"@dataclasses.dataclass\nclass f:\n    a: int = {r}" for r in "23"),
    "named tuple": tuple(f"P = collections.namedtuple('P', 'a')({r})\ndef f(x): return P.a" for r in "23"),
    "order of functions": tuple(
        f"def g(x): return x\ndef h(x): return -x\nlast = [{r}]\ndef f(x): return g(x), h(x), last[0](x)"
        for r in ("g, h", "h, g")
    ),
    "parameters with defaults": tuple(
        f"def g(x, {r}): return {r[0]}\ndef f(x): return g(x, a=3)" for r in ("a=1, b=1", "b=1, a=1")
    ),
    "dictionary that others fill": tuple(
        f"RATES = {{}}\ndef register(rate): RATES['a'] = rate\nregister({r})\ndef f(x): return RATES['a']" for r in "23"
    ),
    "dictionary beside one that is written": tuple(
        f"RATES, SEEN = {{'a': {r}}}, {{}}\ndef f(x):\n    SEEN[RATES['a'] if x else 0] = RATES\n    return x"
        for r in "23"
    ),
}

SAME = {
    "set of functions": "def g(x): return x\ndef h(x): return -x\nT = {g, h, len, max}\ndef f(x): return T",
    "set of lambdas": "T = {lambda x: x, lambda x: -x, lambda x: x + 1}\ndef f(x): return T",
    "dict keyed by a function": "def g(x): return x\ndef h(x): return -x\nT = {g: 1, h: 2}\ndef f(x): return T[g]",
    "dict keyed by an object": "class K: pass\nT = {K(): 1, K(): 2}\ndef f(x): return T",
    "set of objects": "class K: pass\nT = {K(), K(), object()}\ndef f(x): return T",
    "set of sets": "T = {frozenset({'a', 'b', 'c'}), frozenset('xyz')}\ndef f(x): return T, x in {'p', 'q', 'r'}",
    "object of nothing known": "O, L = object(), logging.getLogger('a')\ndef f(x, o=object(), i=iter([])): return O, L",
    "list in itself": "L = [1]; L.append(L)\ndef f(x): return L",
    "dictionaries in each other": "a = {}; b = {'p': a}; a['c'] = b\ndef f(x): return a",
    "object in itself": "class K: pass\nk = K(); k.k = [(k,)]\ndef f(x): return k",
    "object array": "A = np.array([object(), None], dtype=object)\ndef f(x): return A",
    "object with a bad repr": "class K:\n    def __repr__(self): raise ValueError\nT = {K(): K()}\ndef f(x): return T",
}

UNNOTICED = {
    "comment": ("def f(x): return x", "def f(x):\n    # unchanged\n    return x"),
    "name of a local variable": ("def f(x):\n    y = x\n    return y", "def f(x):\n    z = x\n    return z"),
    "annotation": ("def f(x: int): return x", "def f(x: float) -> str: return x"),
    "order of a dictionary": ("D = {1: 2, 3: 4}\ndef f(x): return D", "D = {3: 4, 1: 2}\ndef f(x): return D"),
    "class that is not used": ("class K: pass\ndef f(x): return x", "def f(x): return x"),
    "level of a logger": tuple(f"L = logging.Logger('a', {r})\ndef f(x): return L" for r in "23"),
    "np.vectorize": tuple(f"@np.vectorize\ndef f(x): return {r}" for r in ("x", "-x")),
    "attribute of a function": tuple(f"def f(x): return x * f.by\nf.by = {r}" for r in "23"),
    "import within": tuple(f"import {m}\ndef f(x):\n    from users import g\n    return g(x)" for m in ("re", "uuid")),
}

WRITTEN = {
    "cache": "CACHE = {}\ndef f(x):\n    CACHE[len(str(x)) if x else 0] = x\n    return x",
    "cache in a handler": (
        "CACHE = {}\ndef f(x):\n    try: return CACHE[x]\n    except KeyError:\n        CACHE[x] = x\n        return x"
    ),
    "counts": "COUNTS = {}\ndef f(x):\n    COUNTS.setdefault(x, 0)\n    COUNTS[x] += 1\n    return x",
    "groups": "GROUPS = collections.defaultdict(list)\ndef f(x):\n    GROUPS[x].append(x)\n    return x",
    "cache of a helper": "CACHE = {}\ndef g(x): CACHE[x] = x\ndef f(x):\n    g(x)\n    return x",
    "closure": "def made():\n    seen = set()\n    def f(x):\n        seen.add(x)\n    return f\nf = made()",
    "nonlocal": "def made():\n    n = 0\n    def f(x):\n        nonlocal n\n        n += 1\n    return f\nf = made()",
    "global": "N = 0\ndef f(x):\n    global N\n    N += 1\n    return x",
    "function made late": "G = None\ndef f(x):\n    global G\n    G = G or (lambda x: x)\n    return G(x)",
    "default": "def f(x, cache={}):\n    cache[x] = x\n    return x",
    "attribute of a function": "def f(x):\n    f.calls += 1\n    return x\nf.calls = 0",
    "object": COUNTING + "f = Scale(2)",
    "attribute of a class": "class K: n = 0; seen = []\ndef f(x):\n    K.n += 1\n    K.seen.append(x)\n    return x",
    "functools.cache": "@functools.cache\ndef f(x): return x",
    "flags": "class F(enum.Flag):\n    A = 1\n    B = 2\ndef f(x): return F.A | F.B",
    "np.vectorize": "f = np.vectorize(lambda x: x, otypes=[int])",
    "random numbers": "R = random.Random(1)\ndef f(x): return R.gauss(0, 1)",
}
