"""A cut small enough to reckon by hand: six segments of 1, 2, 3, 3, 2 and 1 ms on two or more devices."""

from __future__ import annotations

from engine.contract.cut import Cut, Segment
from engine.contract.devices import CPU

MILLISECONDS = (1, 2, 3, 3, 2, 1)
PLACES = ("stem", "block1", "block2", "block3", "block4", "")


def a_cut(cuts: tuple[str, ...] = ("block2",), devices: tuple[str, ...] = (CPU, CPU), **changes: object) -> Cut:
    """A third of each segment's time is forward; segment n holds n thousand parameters and sends n KiB."""
    segments = tuple(
        Segment(
            split_point=place,
            module=place or "head",
            layers=1,
            parameters=1000 * number,
            forward_s=tuple(ms / 3000 for _ in devices),
            backward_s=tuple(ms / 1500 for _ in devices),
            activation_bytes=100_000,
            output_bytes=1024 * number,
            first_module=place or "head",
        )
        for number, (place, ms) in enumerate(zip(PLACES, MILLISECONDS, strict=True), start=1)
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
