"""The command line: one file per command, each a thin layer over the public contract."""

from midstream.interface.cli.app import app, main

__all__ = ["app", "main"]
