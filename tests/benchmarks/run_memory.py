"""Memory of a run with two ranks compared with the tutorial's script: `python tests/benchmarks/run_memory.py`.

Two single-threaded CPU workers train resnet18 at 128 px on hymenoptera with DDP and a batch size of 64. Footplate's
memory is that of all processes of `footplate train` with default settings: command, supervisor, workers and sampler. It
is compared with two ranks of `tutorials.run_ddp_loop` that have a DataLoader worker each, without a launcher. Memory is
the peak of the sum of proportional set sizes (Pss of smaps_rollup, Linux only) over the same number of epochs. It is
too low if other processes use PyTorch at the same time. The exit code is 1 if the ratio exceeds 1.2.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import psutil

from tests.benchmarks.frame import DATASETS, describe_environment, make_parser

AIM = 1.2
SIZE, BATCH, WORLD = 128, 64, 2
PERIOD_S = 0.1
MARK = "FOOTPLATE_MEASURED"


def measure_peak(commands: list[list[str]], environment: dict[str, str]) -> tuple[int, dict[str, int]]:
    """Run `commands` at the same time. Return their peak memory in bytes, and each process's part of it.

    Keys are the name and the id of a process, separated by a space.
    """
    mark = uuid.uuid4().hex
    peak_bytes, shares = 0, dict[str, int]()
    variables = os.environ | environment | {MARK: mark}
    started = [subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL) for command in commands]
    while any(process.poll() is None for process in started):
        taken = measure_memory(mark)
        if sum(taken.values()) > peak_bytes:
            peak_bytes, shares = sum(taken.values()), taken
        time.sleep(PERIOD_S)
    if any(process.returncode for process in started):
        raise SystemExit(1)
    return peak_bytes, shares


def measure_memory(mark: str) -> dict[str, int]:
    """Return the memory of each process whose environment contains `mark`, in bytes."""
    taken: dict[str, int] = {}
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) != mark:
                continue
            for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    taken[f"{process.name()} {process.pid}"] = int(line.split()[1]) << 10
        except (psutil.Error, OSError):  # the process has ended
            continue
    return taken


def footplate(data: Path, epochs: int, home: str) -> tuple[int, dict[str, int]]:
    program = "import sys; from footplate import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "train", str(data), "--model", "resnet18", "--strategy", "ddp"]
    command += ["--devices", ",".join(["cpu"] * WORLD), "--image-size", str(SIZE), "--batch-size", str(BATCH)]
    places = {"FOOTPLATE_HOME": f"{home}/home", "FOOTPLATE_CACHE": f"{home}/cache", "XDG_RUNTIME_DIR": home}
    return measure_peak([[*command, "--epochs", str(epochs)]], places)


def measure_tutorial(data: Path, steps: int, folder: str) -> tuple[int, dict[str, int]]:
    rest = [str(data), str(steps), f"{folder}/store"]
    ranks = [[sys.executable, __file__, "--rank", str(rank), *rest] for rank in range(WORLD)]
    return measure_peak(ranks, {"OMP_NUM_THREADS": "1"})


def tutorial_rank(rank: int, data: str, steps: int, store: str) -> None:
    from tests.support.sides import Setting
    from tests.support.tutorials import run_ddp_loop

    setting = Setting(data=data, model="resnet18", size=SIZE, batch=BATCH, classes=2, images=0, seconds=0.0)
    for done in run_ddp_loop(setting, rank, WORLD, store):
        if done == steps:
            break


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, default=DATASETS / "hymenoptera")
    parser.add_argument("--epochs", type=int, default=5)
    chosen = parser.parse_args()
    print(describe_environment())
    images = sum(path.is_file() for path in (chosen.data / "train").rglob("*"))
    with tempfile.TemporaryDirectory(prefix="fp") as folder:
        results = {
            "Footplate": footplate(chosen.data, chosen.epochs, folder),
            "the tutorial's script": measure_tutorial(chosen.data, chosen.epochs * (images // BATCH), folder),
        }
    for name, (peak_bytes, shares) in results.items():
        parts = ", ".join(f"{process} {bytes_ / 2**20:.0f}" for process, bytes_ in shares.items())
        print(f"{name}: {peak_bytes / 2**20:,.0f} MiB at most ({parts})")
    footplate_bytes, tutorial_bytes = (peak_bytes for peak_bytes, _ in results.values())
    print(
        f"ratio {footplate_bytes / tutorial_bytes:.2f} (aim at most {AIM}: {'met' if footplate_bytes <= AIM * tutorial_bytes else 'MISSED'})"
    )
    return 0 if footplate_bytes <= AIM * tutorial_bytes else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        tutorial_rank(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5])
    else:
        sys.exit(main())
