"""Damaged datasets of every kind, by the thousand, looked through by the inspector's own entry under its own limit of memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attacks.mutation import KINDS

pytestmark = pytest.mark.attacks

DAILY, LONG = 216, 10_000
MOST_SECONDS = 10.0
MOST_BYTES = 1 << 30

_LOOK = """
import json, os, re, shutil, sys, time
from pathlib import Path
from engine.data.inspection import inspect
from engine.data.memory import limit_memory
from tests.attacks.mutation import KINDS, Honest, damage

place, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
honest = Honest(place / "honest")
limit_memory()
kinds = list(KINDS)
for seed in range(first, last):
    kind = kinds[seed % len(kinds)]
    folder = place / "set"
    shutil.rmtree(folder, ignore_errors=True)
    task = honest.copy(kind, folder)
    path = damage(folder, seed)
    print(json.dumps({"seed": seed, "kind": kind, "file": path.name}), flush=True)
    begun = time.process_time()
    formats = ("imagefolder", "idx") if task in ("imagefolder", "idx") else (task,)
    report = inspect(str(folder), val_fraction=0.25, seed=0, progress=lambda done, total: None, formats=formats, threads=2)
    told = [[each.message, each.remedy, each.severity] for each in report.problems]
    read = sum(sum(split.counts.values()) or split.total or 0 for split in report.splits)
    spent = time.process_time() - begun
    resident = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
    print(json.dumps({"seed": seed, "told": told, "read": read, "cpu_s": spent, "resident_kib": resident}), flush=True)
"""


def look(place: Path, first: int, last: int) -> list[str]:
    """What is wrong with how the folders damaged by these seeds are told of."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _LOOK, str(place), str(first), str(last)],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        timeout=3000,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = []
    if done.returncode:
        wrong.append(f"{lines[-1] if lines else 'at its start'} ended it with {done.returncode}: {done.stderr[-1500:]}")
    elif done.stderr:
        wrong.append(f"it said {done.stderr[-1500:]}")
    else:
        assert len(lines) == 2 * (last - first)
    named = {line["seed"]: line for line in lines if "kind" in line}
    for line in lines:
        if "told" in line:
            wrong += [f"{named[line['seed']]}: {each}" for each in _faults(line)]
    return wrong


def _faults(line: dict[str, object]) -> list[str]:
    told = line["told"]
    assert isinstance(told, list)
    found = []
    errors = [message for message, _, severity in told if severity == "error"]
    if not errors and not line["read"]:
        found.append("neither is anything read nor is it told why")
    found += [f"no remedy: {message}" for message, remedy, severity in told if severity == "error" and not remedy]
    found += [f"a bare exception: {message[:300]}" for message, _, _ in told if any(word in message for word in BARE)]
    found += [f"a message of {len(message):,} letters" for message, _, _ in told if len(message) > 3000]
    if float(str(line["cpu_s"])) > MOST_SECONDS:
        found.append(f"it took {line['cpu_s']} s")
    if int(str(line["resident_kib"])) << 10 > MOST_BYTES:
        found.append(f"it took {line['resident_kib']} KiB")
    return found


BARE = (
    "Traceback",
    "RecursionError",
    "MemoryError",
    "[Errno",
    "object has no attribute",
    "NoneType",
    "could not convert",
)


def test_that_damaged_datasets_of_every_kind_are_told_of_or_read(tmp_path: Path) -> None:
    assert look(tmp_path, 0, DAILY) == []


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(10))
def test_that_ten_thousand_damaged_datasets_are_told_of_or_read(tmp_path: Path, part: int) -> None:
    count = LONG // 10
    assert look(tmp_path, 1000 + part * count, 1000 + (part + 1) * count) == []


def test_that_the_generator_damages_every_kind() -> None:
    assert DAILY % len(KINDS) == 0
