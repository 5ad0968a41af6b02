"""The table of commands: what each does and which options it has, as its help says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from midstream.interface.cli.app import COMMANDS, command_named

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"
ROW = "| `midstream "


def command_line_page() -> str:
    """The page with its table written anew; what people have written around it stays."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(ROW))
    rest = [line for line in lines[first:] if not line.startswith(ROW)]
    return "\n".join([*lines[:first], *(_row(name) for name in COMMANDS), *rest]) + "\n"


def _row(name: str) -> str:
    command: Any = command_named(name)
    arguments = " ".join(_argument(p) for p in command.params if p.param_type_name == "argument")
    known = [option for p in command.params for option in p.opts if option.startswith("--")]
    shown = " ".join(f"`{option}`" for option in known if option not in ("--help", "--json"))
    usage = f"midstream {name} {arguments}".rstrip()
    return f"| `{usage}` | {command.help.splitlines()[0]} | {shown or ' '} | {'yes' if '--json' in known else 'no'} |"


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name.upper()).strip("[].")
    return name if parameter.required else f"[{name}]"
