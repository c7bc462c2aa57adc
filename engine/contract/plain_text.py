"""Text from elsewhere, made fit to be shown: a name may hold whatever a file system or a file lets it hold."""

from __future__ import annotations

import re

_OBEYED = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal obeys, and would not show: control characters but the tab (C0 and C1 of ECMA-48), line and paragraph
separators, what turns the direction of the text after it (UAX #9: embeddings, overrides, isolates); and lone surrogates."""


def escaped(text: str) -> str:
    """`text` on one line, in which nothing is left that a terminal obeys: ``\\u001b`` for an escape character, as JSON
    writes it, so that JSON means the same as before."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def encodable(text: str) -> str:
    """`text` with ``\\udcff`` for each byte of a name that is not UTF-8, which neither JSON nor Qt can carry as Python has
    it (PEP 383)."""
    return text.encode(errors="backslashreplace").decode()
