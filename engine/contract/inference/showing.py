"""Drawings of an evaluation's samples, truth next to prediction."""

from __future__ import annotations

import msgspec

from engine.contract.images import LegendEntry
from engine.contract.inference.messages import Order

DRAWINGS_FILE = "shown.json"
"""File in the folder `out`; its paths are relative to that folder."""


class ShowOrder(Order, tag="show", frozen=True, kw_only=True):
    """Request to draw truth and prediction of `samples` of an evaluation, as the model receives them, into a folder.

    `evaluation` is its folder and `samples` are indices in its `Samples`. Only the first device is used. The answer is the path
    of a `SampleDrawings`.
    """

    evaluation: str
    samples: tuple[int, ...]
    out: str


class SampleDrawing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """PNGs of truth and prediction of one sample; `legend` has the indices of the legend's entries that occur in them."""

    number: int
    truth_png: str
    prediction_png: str
    truth_words: str = ""
    prediction_words: str = ""
    legend: tuple[int, ...] = ()


class SampleDrawings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Result of a `ShowOrder`; samples that can no longer be read are omitted."""

    legend: tuple[LegendEntry, ...] = ()
    samples: tuple[SampleDrawing, ...] = ()


decode_drawings = msgspec.json.Decoder(SampleDrawings).decode
