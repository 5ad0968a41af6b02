"""Types by the names that are written for them."""

from __future__ import annotations

import pyarrow as pa

from midstream.algebra.types import DECIMAL_DIGITS
from midstream.errors import QueryError

_NAMES = """
    bool BOOLEAN BOOL, int8 TINYINT INT1, int16 SMALLINT INT2 INT16 SHORT, int32 INT INTEGER INT4 INT32, int64 BIGINT
    LONG INT8 INT64 SIGNED, float32 FLOAT REAL FLOAT4 FLOAT32, float64 DOUBLE FLOAT8 FLOAT64, string STRING TEXT VARCHAR
    CHAR CHARACTER NVARCHAR BPCHAR NAME UUID JSON JSONB, binary BINARY BYTES BLOB VARBINARY BYTEA, uint8 UTINYINT UINT8,
    uint16 USMALLINT UINT16, uint32 UINTEGER UINT32, uint64 UBIGINT UINT64, time64[us] TIME, date32 DATE, timestamp[us]
    TIMESTAMP DATETIME TIMESTAMP_NTZ, duration[us] INTERVAL
"""
"""Types as Arrow calls them, each before its names."""

TYPES: dict[str, pa.DataType] = {
    **{name: pa.type_for_alias(kind) for kind, *names in map(str.split, _NAMES.split(",")) for name in names},
    **dict.fromkeys(("HUGEINT", "INT128"), pa.decimal128(DECIMAL_DIGITS, 0)),
    **dict.fromkeys(("TIMESTAMPTZ", "TIMESTAMP_LTZ"), pa.timestamp("us", "UTC")),
}

DECIMALS = ("DECIMAL", "NUMERIC", "DEC", "NUMBER")

SIZED = frozenset(("VARCHAR", "CHAR", "CHARACTER", "NVARCHAR", "BPCHAR", "FLOAT", "TIME", "DATETIME", "TIMESTAMP"))
"""Types whose size or precision may be written, which changes nothing."""


def decimal_type(parameters: list[str]) -> pa.DataType:
    """The type of `DECIMAL` with digits and decimals, or without.

    >>> decimal_type(["10", "2"]), decimal_type(["10"])
    (Decimal128Type(decimal128(10, 2)), Decimal128Type(decimal128(10, 0)))
    """
    try:
        digits, scale = (*map(int, parameters), *(DECIMAL_DIGITS, 10)[len(parameters) :])
    except ValueError:
        raise QueryError("DECIMAL takes the number of digits and of decimals", hint="DECIMAL(18, 3)") from None
    if len(parameters) == 1:
        scale = 0
    if not (1 <= digits <= DECIMAL_DIGITS and 0 <= scale <= digits):
        raise QueryError(
            f"there is no DECIMAL({digits}, {scale})", hint="at most 38 digits, of which at most all are decimals"
        )
    return pa.decimal128(digits, scale)
