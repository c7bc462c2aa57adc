"""How a model is cut into stages: what each part between two places costs, and where the cuts are.

Pure data and arithmetic, so that the window can show a cut and move it without torch. The engine measures
(`engine.strategies.measuring`); here it is decided.
"""

from __future__ import annotations

import msgspec


class Segment(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The part of a model between two neighbouring places to cut (or its beginning, or its end).

    Times and bytes are of one microbatch. `forward_s` and `backward_s` hold a figure per place of the group (the
    devices of one replica), each measured on its own device.
    """

    place: str
    """The place after this segment (a name of `ModelEntry.cut_places`); "" for the last."""
    module: str
    """The submodule at its end, as a dotted path."""
    layers: int
    """How many layers with parameters it holds."""
    parameters: int
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    activation_bytes: int
    """What is kept from the forward pass for the backward pass."""
    output_bytes: int
    """What would travel forward if the model were cut after it, and backward as its gradient."""


class Cut(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model's segments, and where it is cut.

    `stage_places` are those of `Layout`; `devices` the device of each place in the group. `state_bytes` counts per
    parameter what a device holds beside activations: weight, gradient, optimizer state. `in_flight` says of how
    many microbatches each stage keeps the activations at once. `memory_bytes` is what each place's device has
    free, None where that is not known. `seconds_per_byte` is what travelling costs between two places.
    """

    segments: tuple[Segment, ...]
    cuts: tuple[str, ...]
    stage_places: tuple[int, ...]
    devices: tuple[str, ...]
    microbatch_size: int
    microbatches: int
    in_flight: tuple[int, ...]
    state_bytes: int
    memory_bytes: tuple[int | None, ...]
    seconds_per_byte: float = 0.0
    chosen: bool = True
    """Whether the cuts were found by measuring, rather than given in the job."""


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one stage holds and costs. Seconds are of one microbatch, forward and backward together."""

    place: int
    device: str
    first_module: str
    last_module: str
    layers: int
    parameters: int
    seconds: float
    share: float
    """Of the time of all stages."""
    memory_bytes: int
    """Parameters' state and the activations of all microbatches in flight."""
    over_memory: bool
    sent_bytes: int
    """Sent on to the next stage per microbatch; as much comes back as its gradient. 0 for the last stage."""
