"""Text from elsewhere, made fit to be shown: a name may hold whatever a file system or a file lets it hold."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import structs

MOST_SHOWN = 1000
"""The most characters that are shown: a label of 10,000 takes a tenth of a second to lay out, one of 1,000 a
hundredth."""

_OBEYED = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal obeys, and would not show: control characters but the tab (C0 and C1 of ECMA-48), line and
paragraph separators, what turns the direction of the text after it (UAX #9: embeddings, overrides, isolates); and
lone surrogates."""
MOST_LINES = 10
"""The most lines that are shown as lines: a page with a label of several hundred takes as long to draw."""


def escaped(text: str) -> str:
    """`text` on one line, in which nothing is left that a terminal obeys: ``\\u001b`` for an escape character, as JSON
    writes it, so that JSON means the same as before.
    """
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def encodable(text: str) -> str:
    """`text` with ``\\udcff`` for each byte of a name that is not UTF-8, which neither JSON nor Qt can carry as Python
    has it (PEP 383).
    """
    return text.encode(errors="backslashreplace").decode()


def shortened(text: str, at_most: int = MOST_SHOWN) -> str:
    """`text` with … in the place of its middle where it has more than `at_most` characters: of a path the end tells
    most. More than `MOST_LINES` lines are put into one, with ↵ between them.
    """
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        text = "↵".join(lines)
    if len(text) <= at_most:
        return text
    begin = at_most // 2
    return f"{text[:begin]}…{text[len(text) - (at_most - begin - 1) :]}"


def brief(told: Any) -> Any:
    """A message with each of its texts `shortened`, those in what it is made of included."""
    match told:
        case str():
            return shortened(told)
        case msgspec.Struct():
            return structs.replace(told, **{name: brief(getattr(told, name)) for name in told.__struct_fields__})
        case tuple():
            return tuple(map(brief, told))
        case dict():
            return {brief(key): brief(value) for key, value in told.items()}
    return told
