"""Speed and memory of scanning a folder of a thousand to a million images.

    python tests/benchmarks/folder_scan.py [--files N ...] [--separate]

The folders contain small JPEGs in a hundred classes. Unless `--separate` is given, these are hard links to a few files.
Each folder is scanned in a new process, in three ways: from names alone (`recognize`), like a worker before its first
step (`open_splits` and the order of the first epoch), and like the window (`inspect`). A first scan that isn't counted
fills the disk cache. Memory is measured as the maximum growth of the process, and as the growth per file compared with
the smallest folder. The aim, in files per second, applies to 100,000 files or more, because about 0.07 s of the
window's scan (decoding samples) don't depend on the size. The exit code is 1 if the aim is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.frame import ROOT, describe_environment, make_parser

AIM_FILES_PER_S = 50_000
CLASSES = 100
LINKS = 60_000
"""Maximum number of hard links to a file. The limit of ext4 is 65,000."""


def make(folder: Path, files: int, separate: bool) -> Path:
    from tests.support.images import write_noise

    content = write_noise(folder / ".image.jpg", size=(32, 32)).read_bytes()
    for number in range(CLASSES):
        (folder / f"class{number:03}").mkdir()
    linked = ""
    for number in range(files):
        path = f"{folder}/class{number % CLASSES:03}/image_{number:08}.jpg"
        if separate or number % LINKS == 0:
            Path(path).write_bytes(content)
            linked = path
        else:
            os.link(linked, path)
    return folder


def recognize_only(folder: str) -> object:
    from engine.data.formats.registry import recognize

    return recognize(folder, val_fraction=0.2, seed=0)


def start(folder: str) -> object:
    from engine.data.datasets.open_splits import open_splits
    from engine.data.loading.sampler import GlobalBatchSampler
    from engine.data.randomness import RandomStreams

    splits = open_splits(folder, val_fraction=0.2, seed=0)
    sampler = GlobalBatchSampler(len(splits.train), 64, 0, 1, RandomStreams(0))
    return splits, next(iter(sampler))


def inspect(folder: str) -> object:
    from engine.data.inspection.inspector import inspect

    return inspect(folder, val_fraction=0.2, seed=0, progress=lambda done, total: None)


SCANS: dict[str, Callable[[str], object]] = {"recognize": recognize_only, "start": start, "inspect": inspect}


def measure(scan: str, folder: str) -> None:
    """Print the wall-clock time, CPU time and memory growth in bytes of a scan. Imports are excluded.

    `scan` is a key of `SCANS`.
    """
    SCANS[scan](str(ROOT / "resources/sample"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, busy = time.perf_counter(), time.process_time()
    result = SCANS[scan](folder)
    taken, busy = time.perf_counter() - start, time.process_time() - busy
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    del result
    print(json.dumps([taken, busy, 1024 * grown]))


def measure_scan(scan: str, folder: Path) -> tuple[float, float, int]:
    command = [sys.executable, __file__, "--measure", scan, str(folder)]
    for _ in range(2):
        seconds, busy, grown = json.loads(subprocess.check_output(command, text=True))
    return seconds, busy, grown


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--files", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--separate", action="store_true", help="no hard links: every file its own")
    parser.add_argument("--measure", nargs=2, metavar=("LOOK", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(*options.measure)
        return 0
    print(describe_environment())
    print(
        f"{'files':>10}  {'look':10} {'seconds':>8} {'files/s':>10} {'CPU us/file':>12} {'MiB':>7} {'bytes/file':>10}"
    )
    met = True
    baseline: dict[str, tuple[int, int]] = {}
    for files in sorted(options.files):
        with tempfile.TemporaryDirectory(prefix="folder_scan") as folder:
            make(Path(folder), files, options.separate)
            for scan in SCANS:
                seconds, busy, grown = measure_scan(scan, Path(folder))
                few, little = baseline.setdefault(scan, (files, grown))
                each = f"{(grown - little) / (files - few):10.0f}" if files > few else f"{'-':>10}"
                print(
                    f"{files:10,}  {scan:10} {seconds:8.3f} {files / seconds:10,.0f} {1e6 * busy / files:12.1f} "
                    f"{grown / 2**20:7.1f} {each}",
                    flush=True,
                )
                met &= files < 100_000 or files / seconds >= AIM_FILES_PER_S
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
