"""Comparison of Footplate's GPU sampler with nvitop and `nvidia-smi dmon` on real GPUs: values and cost.

    python tests/benchmarks/beside_others.py [--seconds N] [--idle]

All tools run at the same time on terminals of 120 x 40 characters, and read the GPUs once per second. Unless `--idle`
is given, torch alternates between load and rest on the first GPU. Each value of another tool is compared with
Footplate's nearest snapshot, which is at most half a second away. The output shows the median and the largest
differences, and the CPU time of each tool's processes after the start, in percent of a core. The tools are Footplate's
sampler, `nvidia-smi dmon`, nvitop's library, and nvitop with its screen. Missing tools are reported and skipped. The
exit code is 1 if a median exceeds its tolerance. It is 0 on a machine without a GPU.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.util import find_spec

import msgspec
import psutil

from engine.contract.devices import Gpu, Snapshot
from tests.benchmarks.frame import ROOT, describe_environment, make_parser
from tests.support.gpu_watch import describe_gpu

SCREEN = (40, 120)
"""Rows and columns of the terminals."""
WARM_S = 4.0
NEAR_S = 0.5
MIB = 1 << 20

Numbers = dict[tuple[int, str], float]
"""Values of several GPUs. Keys are pairs of a GPU's index and the name of the quantity."""

TOLERANCES = {"use %": 5.0, "memory MiB": 8.0, "temperature °C": 1.0, "power W": 10.0, "SM clock MHz": 30.0}
"""Largest median difference between two tools, by quantity.

Utilization and power are averages over a period of the driver, and the tools read them at different times.
"""

NVITOP = """
import json, time
from nvitop import Device
devices = Device.all()
tick = time.monotonic()
while True:
    told = [[d.gpu_utilization(), d.memory_used(), d.temperature(), d.power_usage(), d.sm_clock()] for d in devices]
    print(json.dumps([time.time(), told], default=lambda value: None), flush=True)
    tick += 1
    time.sleep(max(0, tick - time.monotonic()))
"""

LOAD = """
import time, torch
a = torch.randn(4096, 4096, device='cuda', dtype=torch.bfloat16)
print('loaded', flush=True)
while True:
    until = time.monotonic() + 4
    while time.monotonic() < until:
        for _ in range(50): a @ a
        torch.cuda.synchronize()
    time.sleep(4)
"""


class Watcher:
    """Runner of a tool that monitors GPUs, on a separate terminal.

    `outputs` holds pairs (time, values). `spent_s` is the CPU time of the tool's processes in seconds, from
    `reset_cpu_time` to `end`.
    """

    def __init__(self, name: str, *command: str) -> None:
        self.name = name
        self.outputs: list[tuple[float, Numbers]] = []
        self.spent_s = 0.0
        self._command = command

    def start(self) -> None:
        screen, terminal = os.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *SCREEN, 0, 0))
        self._process = subprocess.Popen(
            self._command, stdin=terminal, stdout=terminal, stderr=terminal, cwd=ROOT, start_new_session=True
        )
        os.close(terminal)
        self._listener = threading.Thread(target=self._listen, args=(screen,))
        self._listener.start()

    def reset_cpu_time(self) -> None:
        """Start measuring `spent_s`."""
        self._before_s = self._cpu_s()

    def end(self) -> None:
        self.spent_s = self._cpu_s() - self._before_s
        for process in self._tree():
            with contextlib.suppress(psutil.NoSuchProcess):  # the child may end with its parent
                process.kill()
        self._process.wait()
        self._listener.join()

    def parse_line(self, line: str) -> None:
        """Parse a line of output and add its values to `outputs`. The default implementation ignores the line."""

    def _tree(self) -> list[psutil.Process]:
        if self._process.poll() is not None:
            raise SystemExit(f"{self.name} ended by itself, with exit code {self._process.returncode}")
        root = psutil.Process(self._process.pid)
        return [root, *root.children(recursive=True)]

    def _cpu_s(self) -> float:
        return sum(time.clock_gettime(get_process_clock(process.pid)) for process in self._tree())

    def _listen(self, screen: int) -> None:
        # EIO: the last process on the terminal has ended.
        with os.fdopen(screen, errors="replace") as lines, contextlib.suppress(OSError):
            for line in lines:
                self.parse_line(line)


class SamplerWatcher(Watcher):
    def parse_line(self, line: str) -> None:
        snapshot = msgspec.json.decode(line, type=Snapshot)
        readings = ((gpu.nvml_index, name, value) for gpu in snapshot.gpus for name, value in list_values(gpu))
        self.outputs.append(
            (snapshot.time, {(index, name): value for index, name, value in readings if value is not None})
        )


class NvitopWatcher(Watcher):
    SCALES = (1, 1 / MIB, 1, 1 / 1000, 1)

    def parse_line(self, line: str) -> None:
        at, gpus = json.loads(line)
        numbers: Numbers = {}
        for index, values in enumerate(gpus):
            for name, value, scale in zip(TOLERANCES, values, self.SCALES, strict=True):
                if isinstance(value, int | float):
                    numbers[index, name] = value * scale
        self.outputs.append((at, numbers))


class DmonWatcher(Watcher):
    """Watcher of `nvidia-smi dmon`, which prints a line per GPU and repeats its column titles."""

    COLUMNS = (
        ("sm", "use %"), ("fb", "memory MiB"), ("gtemp", "temperature °C"), ("pwr", "power W"), ("pclk", "SM clock MHz"),
    )  # fmt: skip
    _columns: Sequence[str] = ()

    def parse_line(self, line: str) -> None:
        cells_of_line = line.split()
        if cells_of_line[:2] == ["#", "gpu"]:
            self._columns = cells_of_line[1:]
        elif cells_of_line and cells_of_line[0].isdigit():
            cells = dict(zip(self._columns, cells_of_line, strict=False))
            readings = {name: cells.get(column, "-") for column, name in self.COLUMNS}
            numbers = {(int(cells_of_line[0]), name): float(cell) for name, cell in readings.items() if cell.isdigit()}
            self.outputs.append((time.time(), numbers))


def get_process_clock(pid: int) -> int:
    """Return the id of the clock that measures a process's CPU time, for `time.clock_gettime`.

    The clock has a resolution of nanoseconds, unlike the ticks in /proc, and includes exited threads. Source:
    clock_getcpuclockid(3), MAKE_PROCESS_CPUCLOCK in Linux's posix-timers_types.h.
    """
    return (~pid << 3) | 2


def list_values(gpu: Gpu) -> list[tuple[str, float | None]]:
    used = None if gpu.memory_used_bytes is None else gpu.memory_used_bytes / MIB
    values = (gpu.utilization_percent, used, gpu.temperature_c, gpu.power_w, gpu.sm_clock_mhz)
    return list(zip(TOLERANCES, values, strict=True))


def compare_values(footplate: Watcher, other: Watcher) -> dict[str, list[float]]:
    """Return the absolute differences between Footplate's and another tool's simultaneous values, by quantity."""
    found = defaultdict(list)
    for at, numbers in other.outputs:
        closest = min(footplate.outputs, key=lambda output: abs(output[0] - at), default=None)
        if closest is not None and abs(closest[0] - at) <= NEAR_S:
            for key in numbers.keys() & closest[1].keys():
                found[key[1]].append(abs(numbers[key] - closest[1][key]))
    return found


def create_watchers() -> list[Watcher]:
    """Create watchers of Footplate's sampler and of the other tools that are installed."""
    python = sys.executable
    found: list[Watcher] = [SamplerWatcher("Footplate's sampler", python, "-m", "engine.gpus", "--interval", "1")]
    if shutil.which("nvidia-smi"):
        found.append(DmonWatcher("nvidia-smi dmon", "nvidia-smi", "dmon", "-s", "pucm", "-d", "1"))
    else:
        print("nvidia-smi is not installed: left out")
    if find_spec("nvitop") is not None:
        found.append(NvitopWatcher("nvitop's library", python, "-c", NVITOP))
        found.append(Watcher("nvitop's screen", python, "-m", "nvitop", "--monitor", "full", "--interval", "1"))
    else:
        print("nvitop is not installed (pip install nvitop): left out")
    return found


@contextlib.contextmanager
def alternate_load(is_requested: bool) -> Iterator[None]:
    """Alternately load the first GPU and let it rest, four seconds each, while the context is active.

    If `is_requested` is False, do nothing.
    """
    if not is_requested:
        yield
        return
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen([sys.executable, "-c", LOAD], stdout=subprocess.PIPE, stderr=errors)
        try:
            assert child.stdout is not None
            if child.stdout.readline() != b"loaded\n":
                errors.seek(0)
                print(f"torch cannot load the GPU: {errors.read().decode(errors='replace').strip()[-200:]}")
            yield
        finally:
            child.kill()
            child.communicate()


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--idle", action="store_true", help="do not load the GPU")
    options = parser.parse_args()
    os.environ.setdefault("TERM", "xterm-256color")
    print(describe_environment())
    try:
        print(f"GPU: {describe_gpu()}")
    except Exception as error:  # any error of NVML
        print(f"no NVIDIA GPU answers here ({error}): nothing to measure")
        return 0
    footplate, *others = all_of_them = create_watchers()
    with alternate_load(not options.idle):
        for watcher in all_of_them:
            watcher.start()
        time.sleep(WARM_S)
        for watcher in all_of_them:
            watcher.reset_cpu_time()
        time.sleep(options.seconds)
        for watcher in all_of_them:
            watcher.end()
    print(f"\nprocessor time over {options.seconds:.0f} s, in percent of one core")
    for watcher in all_of_them:
        print(f"  {watcher.name:22} {100 * watcher.spent_s / options.seconds:6.2f}%")
    results = [is_within_tolerance(footplate, other) for other in others if other.outputs]
    return 0 if all(results) else 1


def is_within_tolerance(footplate: Watcher, other: Watcher) -> bool:
    """Print how much the values of two tools differ. Return True if each median difference is within its tolerance."""
    print(f"\nFootplate against {other.name}: difference, median (greatest) of so many pairs")
    found = compare_values(footplate, other)
    for name, values in found.items():
        print(f"  {name:16} {statistics.median(values):8.2f} ({max(values):.2f}) of {len(values)}")
    return bool(found) and all(statistics.median(values) <= TOLERANCES[name] for name, values in found.items())


if __name__ == "__main__":
    sys.exit(main())
