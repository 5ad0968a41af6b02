"""Any function of the user's as a sink: it is called with results and the delivery that they belong to.

A call can be repeated after a crash, with the same results and the same delivery.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from midstream.connectors.forms import Form, in_form
from midstream.connectors.registry import Option, form_option
from midstream.connectors.sink import Delivery, arrow
from midstream.errors import JobError


class Function:
    """Calls a function of Python with a table and a `Delivery`."""

    options: ClassVar[Mapping[str, Option]] = {
        "python": Option(str, "The function of a table and a delivery: package.module:name.", needed=True),
        "form": form_option("rows", "changelog", "current"),
    }

    def __init__(self, python: str, form: Form = "rows") -> None:
        self.name, self.form = f"function {python}", form
        self.call: Callable[[pa.Table, Delivery], object] = imported(python, None, "the sink's python")

    def deliver(self, results: Any, delivery: Delivery) -> None:
        """Calls the function."""
        self.call(in_form(arrow(results), self.form, delivery.query, delivery.now), delivery)


def imported(path: str, folder: Path | None, place: str) -> Any:
    """What a path such as `package.module:name` names; modules are looked for in a folder too."""
    module, _, attribute = path.partition(":")
    if not module or not attribute:
        raise JobError(f"{place} cannot be {path!r}", hint='write "package.module:function", with a colon')
    if folder is not None and str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise JobError(f"{place} cannot be imported", detail=str(error)) from error
