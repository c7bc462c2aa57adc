"""Exponential moving average for the smoothing slider, debiased like TensorBoard's."""

from __future__ import annotations

import math

import numpy as np

from gui.sources.columns import Column, Floats

_LARGEST_EXPONENT = 200.0
"""Largest exponent of a block: weights are divided by their powers, and e^200 leaves room in a float64."""


class Smoother:
    """Smoother of a growing series, which processes only its new values.

    s_n = w s_(n-1) + (1 - w) v_n with s_0 = 0, shown as s_n / (1 - w^n): without the divisor the first values would lean
    towards 0 (TensorBoard, `resmooth` in vz_line_chart). A NaN stays NaN and is not counted.
    """

    def __init__(self, weight: float) -> None:
        """Create a smoother with a weight from 0 (no smoothing) up to, but not including, 1.

        Raises ValueError outside.
        """
        if not 0 <= weight < 1:
            raise ValueError(f"a smoothing weight is at least 0 and below 1, not {weight}")
        self.weight = weight
        self._smoothed = Column()
        self._sum = 0.0
        self._count = 0

    def update(self, values: Floats) -> Floats:
        """Return the smoothed series of `values`, which must extend those of earlier calls."""
        fresh = values[len(self._smoothed) :]
        if len(fresh):
            self._smoothed.extend(self._extend(fresh))
        return self._smoothed.values

    def _extend(self, fresh: Floats) -> Floats:
        if self.weight == 0:
            return fresh
        result = np.full(len(fresh), np.nan)
        finite = np.isfinite(fresh)
        result[finite] = self._average(fresh[finite])
        return result

    def _average(self, values: Floats) -> Floats:
        log_weight = math.log(self.weight)
        block = max(1, int(_LARGEST_EXPONENT / -log_weight))
        result = np.empty(len(values))
        for start in range(0, len(values), block):
            block_values = values[start : start + block]
            exponents = np.arange(1, len(block_values) + 1)
            powers = np.exp(log_weight * exponents)
            sums = powers * (self._sum + (1 - self.weight) * np.cumsum(block_values / powers))
            # 1 - w^n without losing digits where w^n is close to 1.
            result[start : start + block] = sums / -np.expm1(log_weight * (self._count + exponents))
            self._sum = float(sums[-1])
            self._count += len(block_values)
        return result
