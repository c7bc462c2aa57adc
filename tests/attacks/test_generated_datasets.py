"""Inspections of thousands of damaged datasets in every format, within the inspector's memory limit."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine.system.plain_text import MAX_SHOWN_CHARS
from tests.attacks.mutation import KINDS

pytestmark = pytest.mark.attacks

DAILY, LONG = 58, 10_000
MAX_SECONDS = 10.0
MAX_BYTES = 1 << 30

_PANIC = re.compile(r"\nthread '<unnamed>' \(\d+\) panicked at .+:\n.+\n(?:note: run with .+\n)?")
"""Message that lazrs prints about damaged points, before the inspector reports the file."""
_INSPECT = """
import gc, json, os, re, shutil, sys, time, traceback
from pathlib import Path
from engine.data.inspection.inspector import inspect
from engine.data.memory_limit import limit_memory
from tests.attacks.mutation import KINDS, ValidFolders, damage_file

DONE = {"subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn", "socket.connect", "pickle.find_class"}
looking, done = False, []

def watch(event, args):
    if looking and (event in DONE or (event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))):
        done.append(f"{event} {args[0]!r}"[:200])

def there():
    return len(os.listdir("/proc/self/fd")), sorted(map(str, folder.rglob("*")))

place, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
honest = ValidFolders(place / "honest")
limit_memory()
sys.dont_write_bytecode = True
sys.addaudithook(watch)
kinds = list(KINDS)
for seed in range(first, last):
    kind = kinds[seed % len(kinds)]
    folder = place / "set"
    shutil.rmtree(folder, ignore_errors=True)
    task = honest.copy(kind, folder)
    path = damage_file(folder, seed)
    print(json.dumps({"seed": seed, "kind": kind, "file": path.name}), flush=True)
    before, looking = there(), True
    begun, clock = time.process_time(), time.perf_counter()
    formats = (task,)
    try:
        report = inspect(
            str(folder), val_fraction=0.25, seed=0, progress=lambda done, total: None, kinds=formats, threads=2
        )
    except Exception:
        print(json.dumps({"seed": seed, "raised": traceback.format_exc()[-700:]}), flush=True)
        looking = False
        continue
    told = [[each.field, each.message, each.remedy, each.severity] for each in report.problems]
    read = sum(sum(split.counts.values()) or split.total or 0 for split in report.splits)
    spent, waited, looking = time.process_time() - begun, time.perf_counter() - clock, False
    gc.collect()
    left = [] if there() == before else [repr(before)[:300], repr(there())[:300]]
    resident = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
    line = {"told": told, "read": read, "done": done, "left": left, "cpu_s": spent, "clock_s": waited, "resident_kib": resident}
    print(json.dumps({"seed": seed, **line}), flush=True)
    done.clear()
"""


@dataclass
class InspectionSummary:
    """Summary of many inspections.

    `wrong` describes faults of the inspector. `folders`, `refused` and `crashes` are counts. The fields that begin with
    `max_` are the largest values of a single inspection.
    """

    wrong: list[str] = field(default_factory=list)
    folders: int = 0
    refused: int = 0
    crashes: int = 0
    max_cpu_s: float = 0.0
    max_clock_s: float = 0.0
    max_bytes: int = 0


def inspect_damaged_folders(place: Path, first: int, last: int) -> InspectionSummary:
    """Inspect a damaged folder for each seed from `first` to `last` - 1. After a crash, continue in a new process."""
    found = InspectionSummary()
    seed = first
    while seed < last:
        seed = _inspect_range(place / str(seed), seed, last, found)
    return found


def _inspect_range(place: Path, first: int, last: int, found: InspectionSummary) -> int:
    """Inspect damaged folders in a child process until it is done or crashes. Return the seed to continue with.

    The results are added to `found`.
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _INSPECT, str(place), str(first), str(last)],
        capture_output=True,
        text=True,
        env=os.environ | {"RUST_BACKTRACE": "0"},
        timeout=3000,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    named = {line["seed"]: line for line in lines if "kind" in line}
    found.folders += len(named)
    for line in lines:
        if "kind" not in line:
            found.wrong += [f"{named[line['seed']]}: {each}" for each in _faults(line, found)]
    if done.returncode == 0:
        assert len(lines) == 2 * (last - first)
        printed = _PANIC.sub("", done.stderr)
        found.wrong += [f"it printed {printed[:1500]}"] if printed else []
        return last
    assert named, f"it ended with {done.returncode}: {done.stderr[-1500:]}"
    found.crashes += 1
    seed = max(named)
    # The decoder can't allocate the memory that LASzip declares; the inspector names the file (see test_crashing_decoders.py).
    if done.returncode != -signal.SIGABRT or named[seed]["kind"] != "laz":
        found.wrong.append(f"{named[seed]} ended it with {done.returncode}: {done.stderr[-1500:]}")
    return seed + 1


def _faults(line: dict[str, Any], found: InspectionSummary) -> list[str]:
    if "raised" in line:
        return [line["raised"]]
    problems = line["told"]
    faults = []
    errors = [(field, message, remedy) for field, message, remedy, severity in problems if severity == "error"]
    if not errors and not line["read"]:
        faults.append("neither is anything read nor is it told why")
    faults += [f"neither field nor remedy: {message}" for field, message, remedy in errors if not (field and remedy)]
    faults += [f"a bare exception: {text[:300]}" for _, text, _, _ in problems if any(word in text for word in BARE)]
    faults += [f"a message of {len(text):,} letters" for _, text, _, _ in problems if len(text) > MAX_SHOWN_CHARS]
    faults += [f"it did {done}" for done in line["done"]]
    faults += [f"it left something: {line['left']}"] if line["left"] else []
    if line["cpu_s"] > MAX_SECONDS:
        faults.append(f"it took {line['cpu_s']} s")
    if line["resident_kib"] << 10 > MAX_BYTES:
        faults.append(f"it took {line['resident_kib']} KiB")
    found.refused += bool(errors)
    found.max_cpu_s = max(found.max_cpu_s, line["cpu_s"])
    found.max_clock_s = max(found.max_clock_s, line["clock_s"])
    found.max_bytes = max(found.max_bytes, line["resident_kib"] << 10)
    return faults


BARE = (
    "Traceback",
    "RecursionError",
    "MemoryError",
    "[Errno",
    "object has no attribute",
    "NoneType",
    "could not convert",
)


def test_damaged_datasets_are_reported_or_read(tmp_path: Path) -> None:
    found = inspect_damaged_folders(tmp_path, 0, DAILY)
    assert found.wrong == []
    assert found.folders == DAILY


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("batch", range(10))
def test_ten_thousand_damaged_datasets(tmp_path: Path, batch: int) -> None:
    count = LONG // 10
    found = inspect_damaged_folders(tmp_path, 1000 + batch * count, 1000 + (batch + 1) * count)
    print(found)
    assert found.wrong == []
    assert found.folders == count


def test_generator_damages_every_format() -> None:
    assert DAILY % len(KINDS) == 0
