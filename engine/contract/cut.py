"""A model's cut into stages, as its run, its planner and the window tell it: what each part costs, and where the cuts
are.
"""

from __future__ import annotations

import msgspec


class Segment(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The part of a model between two neighbouring split points (or its beginning, or its end).

    Times and bytes are of one microbatch. `forward_s` and `backward_s` hold a figure per rank of the group (the
    devices of one replica), each measured on its own device; the backward pass has its share of the optimizer's step.
    """

    split_point: str
    """The split point after this segment (a name of `ModelEntry.split_points`); "" for the last."""
    module: str
    """The submodule at its end, as a dotted path."""
    layers: int
    """How many layers with parameters it holds."""
    parameters: int
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    activation_bytes: int
    """What is kept from the forward pass for the backward pass: its output too, but neither its input nor its
    parameters."""
    output_bytes: int
    """What would travel forward if the model were cut after it, and backward as its gradient."""
    first_module: str = ""
    """The submodule at its beginning."""


class Cut(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model's segments, and where it is cut.

    `stage_ranks` are those of `Layout`; `devices` the device of each rank in the group. `state_bytes` counts per
    parameter what a device holds beside activations: weight, gradient, optimizer state. `in_flight` says of how
    many microbatches each stage keeps the activations at once. `memory_bytes` is what each rank's device has
    free, None where that is not known. `seconds_per_byte` is what travelling costs between two ranks.
    """

    segments: tuple[Segment, ...]
    cuts: tuple[str, ...]
    stage_ranks: tuple[int, ...]
    devices: tuple[str, ...]
    microbatch_size: int
    microbatches: int
    in_flight: tuple[int, ...]
    state_bytes: int
    memory_bytes: tuple[int | None, ...]
    seconds_per_byte: float = 0.0
    recomputed: bool = False
    """Whether stages keep their inputs alone and compute the rest again in the backward pass."""
    phased: bool = False
    """Whether all forward passes of a step come before all backward passes, as under GPipe: the slowest of each
    count."""
    chosen: bool = True
    """Whether the cuts were found by measuring, rather than given in the job."""
