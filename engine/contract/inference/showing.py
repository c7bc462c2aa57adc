"""How samples of an evaluation are drawn, truth beside prediction, and what is kept of them."""

from __future__ import annotations

import msgspec

from engine.contract.inference.messages import Order
from engine.contract.legend import LegendEntry

SHOWN_FILE = "shown.json"
"""In the folder `out`; the paths in it are relative to that folder."""


class ShowOrder(Order, tag="show", frozen=True, kw_only=True):
    """Draws the truth and the prediction of `samples` of an evaluation, whose folder is `evaluation`, by their
    numbers in its `Samples`, as the model is given them, into the folder `out`, on the first of the devices. The path
    of a `Shown` is the answer.
    """

    evaluation: str
    samples: tuple[int, ...]
    out: str


class ShownSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Two PNGs of the sample with that `number`, and what is to be said of them; `legend` has the places of those
    entries of the whole legend that are in them.
    """

    number: int
    truth_png: str
    prediction_png: str
    truth_words: str = ""
    prediction_words: str = ""
    legend: tuple[int, ...] = ()


class Shown(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What came of a ShowOrder; samples that can't be read any more are not there."""

    legend: tuple[LegendEntry, ...] = ()
    samples: tuple[ShownSample, ...] = ()


decode_shown = msgspec.json.Decoder(Shown).decode
