"""CQL text to logical plan: a sqlglot dialect reads the text, the binder gives every name its meaning."""

from midstream.language.binder import parse

__all__ = ["parse"]
