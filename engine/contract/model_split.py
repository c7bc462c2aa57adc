"""Split of a model into pipeline stages.

``python -m engine.advisor.planning`` finds such a split for a job that it receives as its request.
"""

from __future__ import annotations

import msgspec

from engine.contract.messages import Done, Progress, Refused


class Segment(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Part of a model between two neighboring possible split points, or before the first or after the last one.

    Times and bytes are per microbatch. `forward_s` and `backward_s` have one value for each rank in the group (the
    devices of one replica), measured on its device. The backward time includes a fraction of the optimizer's step.
    """

    split_point: str
    """Possible split point after this segment, as in `ModelEntry.possible_split_points`, or "" for the last segment."""
    module: str
    """Dotted path of the last submodule."""
    layers: int
    """Number of layers with parameters."""
    parameters: int
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    activation_bytes: int
    """Bytes saved for the backward pass, including the output but not the input and the parameters."""
    output_bytes: int
    """Bytes that are sent forward if a stage ends after this segment. Their gradient has the same size."""
    first_module: str = ""
    """Dotted path of the first submodule."""


class ModelSplit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Segments of a model, and the split points between its stages.

    Attributes:
        stage_ranks: Rank in the group that holds each stage.
        devices: Device of each rank in the group.
        in_flight: Maximum number of microbatches whose activations each stage stores.
        state_bytes: Bytes per parameter for weight, gradient and optimizer state.
        memory_bytes: Free memory of each rank's device, or None if unknown.
        seconds_per_byte: Cost of sending between two ranks.
        recomputed: True if stages save only their inputs and recompute activations in the backward pass.
        phased: True if all forward passes of a step precede all backward passes, as in GPipe. The slowest stage of each
            phase then determines the time.
        chosen: True if Footplate chose the split points by measuring, False if the job specifies them.
    """

    segments: tuple[Segment, ...]
    split_points: tuple[str, ...]
    stage_ranks: tuple[int, ...]
    devices: tuple[str, ...]
    microbatch_size: int
    microbatches: int
    in_flight: tuple[int, ...]
    state_bytes: int
    memory_bytes: tuple[int | None, ...]
    seconds_per_byte: float = 0.0
    recomputed: bool = False
    phased: bool = False
    chosen: bool = True


PLANNING = msgspec.json.Decoder(Progress | Refused | Done[ModelSplit])
