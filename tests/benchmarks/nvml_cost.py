"""Cost of NVML calls and of the GPU sampler.

    python tests/benchmarks/nvml_cost.py [--seconds 30] [--json]

The benchmark uses this machine's GPUs. Without a GPU, it uses the NVML stub with eight GPUs that report all quantities
of an H200. Calls of the stub cost almost nothing, so that only the cost of the sampler itself is measured. The column
"Over NVML" is the CPU time of all processes of the sampler, minus the time inside NVML's calls.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import psutil

from engine.contract.devices import Snapshot, SnapshotRequest
from tests.benchmarks.frame import ROOT
from tests.support.nvml_profiles import MACHINES
from tests.support.nvml_stub import compile_stub

AIM_PERCENT = 1.0
READINGS = 200
WARM_UP = 3
"""Number of snapshots to ignore. After them, all processes have started and have read every quantity once."""


def main() -> None:
    """Print the costs of NVML's functions and of the sampler."""
    options = _options()
    if options.calls:
        print(json.dumps(time_calls()))
        return
    with tempfile.TemporaryDirectory() as folder:
        real = _has_gpus(os.environ)
        environment = dict(os.environ) if real else os.environ | _stub(Path(folder))
        command = [sys.executable, __file__, "--calls"]
        calls = json.loads(
            subprocess.run(command, env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
        )
        sampler = time_sampler(environment, options.seconds)
    if options.json:
        print(json.dumps({"real_gpus": real, "calls": calls, "sampler": sampler}, indent=2))
        return
    if not real:
        print("No NVIDIA GPU answers here: these are the costs in front of the NVML stub, whose own calls are cheap.\n")
    _print_calls(calls)
    _print_sampler(sampler)


def time_calls() -> list[dict[str, Any]]:
    """Read `READINGS` snapshots and measure each NVML function that they call.

    Returns, for each "function", the number of calls ("calls_at_first" in the first snapshot, "calls" in all), and the
    microseconds of a call ("median_us", "longest_us").
    """
    import pynvml

    from engine.gpus.nvml.nvml_reader import NvmlReader

    spent: dict[str, list[float]] = defaultdict(list)

    def wrap_with_timer(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                spent[name].append(time.perf_counter() - start)

        return call

    for name in dir(pynvml):
        if name.startswith(("nvmlDevice", "nvmlGpm", "nvmlEvent", "nvmlSystem")) and callable(getattr(pynvml, name)):
            setattr(pynvml, name, wrap_with_timer(name, getattr(pynvml, name)))
    reader = NvmlReader()
    for number in range(READINGS):
        reader.read(SnapshotRequest())
        if number == 0:  # the first reading reads everything
            first = {name: len(times) for name, times in spent.items()}
        time.sleep(0.01)
    return [
        {
            "function": name,
            "calls_at_first": first.get(name, 0),
            "calls": len(times),
            "median_us": 1e6 * sorted(times)[len(times) // 2],
            "longest_us": 1e6 * max(times),
        }
        for name, times in sorted(spent.items(), key=lambda item: -sum(item[1]))
    ]


def time_sampler(environment: Mapping[str, str], seconds: float) -> dict[str, float]:
    """Run the sampler with one snapshot of all quantities per second, and measure it for `seconds`.

    The results include "cpu_percent", the sampler's CPU time in percent of a core, "nvml_percent", the time in NVML,
    and "over_nvml_percent", the difference.
    """
    command = [sys.executable, "-m", "engine.gpus", "--interval", "1"]
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        snapshots = (msgspec.json.decode(line, type=Snapshot) for line in process.stdout)
        for _ in itertools.islice((snapshot for snapshot in snapshots if snapshot.gpus), WARM_UP):
            continue
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        start, start_cpu_s = time.monotonic(), _read_cpu_s(family)
        nvml_s, count, gpus, size = 0.0, 0, 0, 0
        for snapshot in snapshots:
            nvml_s += snapshot.nvml_call_s or 0.0
            count += 1
            gpus = len(snapshot.gpus)
            size = len(msgspec.json.encode(snapshot))
            if time.monotonic() - start >= seconds:
                break
        elapsed_s, end_cpu_s = time.monotonic() - start, _read_cpu_s(family)
        cpu_s = sum(end_cpu_s[member] - start_cpu_s[member] for member in end_cpu_s)
        memory = sum(member.memory_info().rss for member in end_cpu_s)
        process.kill()
    return {
        "gpus": gpus,
        "seconds": elapsed_s,
        "snapshots": count,
        "bytes_a_snapshot": size,
        "cpu_percent": 100 * cpu_s / elapsed_s,
        "nvml_percent": 100 * nvml_s / elapsed_s,
        "over_nvml_percent": 100 * max(0.0, cpu_s - nvml_s) / elapsed_s,
        "resident_bytes": memory,
    }


def _read_cpu_s(family: list[psutil.Process]) -> dict[psutil.Process, float]:
    """Return the CPU seconds of those processes in `family` that are still running."""
    seconds = {}
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            seconds[member] = sum(member.cpu_times()[:2])
    return seconds


def _has_gpus(environment: Mapping[str, str]) -> bool:
    command = [sys.executable, "-m", "engine.gpus", "--once", "--only-basics"]
    line = subprocess.run(command, env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    return bool(msgspec.json.decode(line, type=Snapshot).gpus)


def _stub(folder: Path) -> dict[str, str]:
    stub = compile_stub(folder)
    MACHINES["everything"].write(stub)
    return stub.environment


def _print_calls(calls: list[dict[str, Any]]) -> None:
    print(f"{'NVML call':46}{'first reading':>15}{'later, each':>13}{'median':>12}{'longest':>14}")
    for row in calls:
        later = (row["calls"] - row["calls_at_first"]) / (READINGS - 1)
        print(
            f"{row['function']:46}{row['calls_at_first']:>15}{later:>13.1f}"
            f"{row['median_us']:>9.1f} us{row['longest_us']:>11.1f} us"
        )


def _print_sampler(sampler: Mapping[str, float]) -> None:
    print(
        f"\n{sampler['gpus']:.0f} GPUs, everything visible, {sampler['snapshots']:.0f} snapshots of "
        f"{sampler['bytes_a_snapshot'] / 1024:.1f} KiB in {sampler['seconds']:.0f} s, in percent of one core:\n"
        f"  the sampler's processes {sampler['cpu_percent']:.2f}%, time within NVML's calls {sampler['nvml_percent']:.2f}%, "
        f"over NVML {sampler['over_nvml_percent']:.2f}% (aim: at most {AIM_PERCENT:.0f}%)\n"
        f"  resident memory {sampler['resident_bytes'] / (1 << 20):.0f} MiB"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the sampler is watched")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--calls", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
