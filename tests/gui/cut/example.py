"""Cut that is small enough to calculate by hand: six segments of 1, 2, 3, 3, 2 and 1 ms."""

from __future__ import annotations

from engine.contract.cut import Cut, Segment
from engine.contract.devices import CPU

MILLISECONDS = (1, 2, 3, 3, 2, 1)
SPLIT_POINTS = ("stem", "block1", "block2", "block3", "block4", "")


def a_cut(cuts: tuple[str, ...] = ("block2",), devices: tuple[str, ...] = (CPU, CPU), **changes: object) -> Cut:
    """Return the cut; a third of a segment's time is forward, segment n has n thousand parameters and sends n KiB."""
    segments = tuple(
        Segment(
            split_point=split_point,
            module=split_point or "head",
            layers=1,
            parameters=1000 * number,
            forward_s=tuple(ms / 3000 for _ in devices),
            backward_s=tuple(ms / 1500 for _ in devices),
            activation_bytes=100_000,
            output_bytes=1024 * number,
            first_module=split_point or "head",
        )
        for number, (split_point, ms) in enumerate(zip(SPLIT_POINTS, MILLISECONDS, strict=True), start=1)
    )
    values: dict[str, object] = {
        "segments": segments,
        "cuts": cuts,
        "stage_ranks": tuple(range(len(devices))),
        "devices": devices,
        "microbatch_size": 4,
        "microbatches": 8,
        "in_flight": tuple(range(len(devices), 0, -1)),
        "state_bytes": 12,
        "memory_bytes": tuple(None for _ in devices),
    }
    return Cut(**(values | changes))  # type: ignore[arg-type]
