"""What the colours in images stand for."""

from __future__ import annotations

import msgspec


class LegendEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a colour stands for, mostly a class. `colour` is "#rrggbb", or "" where what is of it is left as it is."""

    name: str
    colour: str
