"""How the folds of a cross-validation are written."""

from __future__ import annotations

import re

_WRITTEN = re.compile(r"(\d{1,3})/(\d{1,3})", re.ASCII)


def fold_of(text: str) -> tuple[int, int] | None:
    """Which fold of how many "2/5" is, from 1 on; None where it is none."""
    written = _WRITTEN.fullmatch(text)
    if written is None:
        return None
    number, count = int(written[1]), int(written[2])
    return (number, count) if 1 <= number <= count > 1 else None
