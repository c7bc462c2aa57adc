"""Cost of reading the profile of a step: `python tests/benchmarks/profile_cost.py`.

Forward and backward passes of resnet50 on the CPU are profiled. The events are read with `torch.profiler`'s own
function and with `device_events`, which Footplate uses for profiled steps on several GPUs. The output shows the medians
of both and their ratio. The exit code is 1 if the ratio exceeds 0.2.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
import torchvision

from engine.torch_compat import device_events
from tests.benchmarks.frame import describe_environment, make_parser

AIM = 0.2


def count_torch_events(profile: torch.profiler.profile) -> int:
    return len([(event.name, event.time_range.start, event.time_range.end) for event in profile.events() or ()])


def count_raw_events(profile: torch.profiler.profile) -> int:
    return len(list(device_events(profile, torch.autograd.DeviceType.CPU)))


def measure_reading_s(read: Callable[[torch.profiler.profile], int], model: torch.nn.Module) -> float:
    """Profile a forward and a backward pass of `model`. Return the seconds of CPU time in which `read` reads the events."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        model(torch.randn(2, 3, 64, 64)).sum().backward()
    started = time.process_time()
    assert read(profile)
    return time.process_time() - started


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--turns", type=int, default=7)
    turns = parser.parse_args().turns
    torch.set_num_threads(1)
    model = torchvision.models.resnet50()
    pairs = [
        (measure_reading_s(count_torch_events, model), measure_reading_s(count_raw_events, model)) for _ in range(turns)
    ]
    by_torch, raw = (statistics.median(times) for times in zip(*pairs, strict=True))
    print(describe_environment())
    print(
        f"torch.profiler's events {1e3 * by_torch:.0f} ms, device_events {1e3 * raw:.0f} ms, ratio {raw / by_torch:.3f}"
    )
    return 0 if raw / by_torch <= AIM else 1


if __name__ == "__main__":
    sys.exit(main())
