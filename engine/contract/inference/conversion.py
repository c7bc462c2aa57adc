"""How a model is converted into a file for other programs, and what is kept of it."""

from __future__ import annotations

from typing import Literal

from engine.contract.inference.messages import Order

Target = Literal["onnx", "safetensors"]


class ConvertOrder(Order, tag="convert", frozen=True, kw_only=True):
    """Writes the model as `to` into the folder `out`."""

    to: Target
    out: str
