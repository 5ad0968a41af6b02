r"""Text that others wrote, as a terminal may show it.

Rows, names and messages can hold characters by which a terminal is commanded (it clears its screen, sets the clipboard
or the title), and marks that turn the order of what follows. All of them are shown as escapes such as `\x1b`, so what
is read is what is there. Whatever prints text that is not its own prints it through here.
"""

from __future__ import annotations

import json
import re
from typing import Any

_COMMANDING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Control characters, marks of direction, separators of lines, and halves of characters."""


def visible(text: str) -> str:
    r"""One piece of text on one line.

    >>> print(visible("\x1b[2Jfree of\nerrors"))
    \x1b[2Jfree of\nerrors
    """
    return _COMMANDING.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def visible_lines(text: str) -> str:
    r"""Text of several lines, which stay lines; tabs stay, too.

    >>> visible_lines("a\tb\n\x07c")
    'a\tb\n\\x07c'
    """
    return _COMMANDING.sub(lambda found: found[0] if found[0] in "\n\t" else visible(found[0]), text)


def visible_json(value: Any, **how: Any) -> str:
    r"""One line of JSON that means the value and holds nothing that commands a terminal.

    >>> print(visible_json({"k": "\x1b\x9b"}))
    {"k": "\u001b\u009b"}
    """
    text = json.dumps(value, ensure_ascii=False, **how)
    return _COMMANDING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
