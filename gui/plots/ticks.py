"""Round numbers along an axis."""

from __future__ import annotations

import math


def round_step(min_step: float) -> float:
    """Return the least of 1, 2, 5 times a power of ten that is not below `min_step`."""
    if min_step <= 0 or not math.isfinite(min_step):
        return 1.0
    power = 10.0 ** math.floor(math.log10(min_step))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= min_step * 0.999)


def round_ticks(highest: float, max_ticks: int) -> list[float]:
    """Return about `max_ticks` equally spaced round numbers from 0 up to `highest`."""
    if highest <= 0 or not math.isfinite(highest):
        return [0.0]
    step = round_step(highest / max(1, max_ticks))
    return [round(step * number, 12) for number in range(int(highest / step * (1 + 1e-9)) + 1)]
