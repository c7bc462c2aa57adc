"""What a file goes through before a model is given it: kept with a run, so that its model can be used without its
dataset.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Framing = Literal["crop", "whole", "continued", ""]
"""How an image becomes a square: its middle is cut out; or it lies whole in it, with black around it, or with its
outermost pixels going on; "" for samples that are not images."""


class Preprocessing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """`mean` and `std` are per channel, of values scaled to 0..1 (of points, of the values themselves).

    In a dataset of TIFFs of many bands, the values of band i from `low[i]` to `high[i]` become 0..1. `features` are
    what a point has besides its position, and `values` what stands for each class in the files of the training's
    point clouds.
    """

    framing: Framing = "crop"
    mean: tuple[float, ...]
    std: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    features: tuple[str, ...] = ()
    values: tuple[int, ...] = ()
