"""Mutation tests: ``python tests/mutations/run.py [NAME ...]``.

Each patch in `faults` puts a fault into a copy of the tree. The lines before its first "diff" explain it, and after
"tests:" name tests that must fail with it and pass without. The exit code is 1 if no test fails with a fault, or if a
patch doesn't apply.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
FAULTS = Path(__file__).parent / "faults"
SOURCES = ("engine", "gui", "resources", "tests", "footplate.py", "pyproject.toml")
FAILED = 1
"""pytest's exit code where tests ran and some failed."""


def verdict(fault: Path) -> str:
    """Return "noticed", or the reason why not."""
    with tempfile.TemporaryDirectory(prefix="footplate-mutation-") as folder:
        tree = copied(Path(folder))
        applied = subprocess.run(["git", "apply", str(fault)], cwd=tree, capture_output=True, text=True, check=False)
        if applied.returncode:
            return f"does not fit any more: {applied.stderr.strip()}"
        done = tested(tree, tests_of(fault), "-x")
    if done.returncode == FAILED:
        return "noticed"
    return "NOT NOTICED" if done.returncode == 0 else f"pytest ended with {done.returncode}: {done.stdout[-500:]}"


def tests_of(fault: Path) -> list[str]:
    head = fault.read_text().partition("diff --git")[0]
    return [line.partition("tests:")[2].strip() for line in head.splitlines() if line.startswith("tests:")]


def copied(tree: Path) -> Path:
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__", "mutations"))
        else:
            shutil.copy(source, tree / name)
    return tree


def tested(tree: Path, tests: Iterable[str], *options: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "pytest", "-n", "0", "-m", "", "-q", *options, *tests]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    return subprocess.run(arguments, cwd=tree, env=environment, capture_output=True, text=True, check=False)


def main() -> int:
    faults = [fault for fault in sorted(FAULTS.glob("*.patch")) if not sys.argv[1:] or fault.stem in sys.argv[1:]]
    with tempfile.TemporaryDirectory(prefix="footplate-mutation-") as folder:
        sound = tested(copied(Path(folder)), sorted({test for fault in faults for test in tests_of(fault)}))
    if sound.returncode:
        print(f"The tests fail without any fault:\n{sound.stdout[-5000:]}")
        return 1
    missed = 0
    for fault in faults:
        start = time.monotonic()
        found = verdict(fault)
        missed += found != "noticed"
        print(f"{fault.stem:40} {time.monotonic() - start:5.0f} s  {found}", flush=True)
    print(f"{len(faults) - missed} of {len(faults)} faults were noticed.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
