"""Tests from the regular suite that need a GPU: loaders, training, memory, sampler, stopwatch."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from xml.etree import ElementTree

from tests.gpu.checks import TEXT_LIMIT, CheckContext, Skipped, run_checks

FILES: dict[str, tuple[float, tuple[str, ...]]] = {
    "batches": (
        100,
        ("tests/engine/data/loading/test_loader_on_gpu.py", "tests/engine/data/loading/test_sample_loader.py"),
    ),
    "training": (300, ("tests/engine/strategies/test_on_gpu.py",)),
    "memory and time": (
        100,
        ("tests/engine/training/test_out_of_memory.py", "tests/engine/strategies/test_stopwatch.py"),
    ),
    "sampler": (100, ("tests/engine/gpus/test_real_gpus.py",)),
}
OPTIONS = (
    "-c", "tests/gpu/pytest.ini", "--rootdir", ".", "--import-mode=importlib", "-p", "no:cacheprovider", "-m", "not long",
    "-k", "gpu", "-q",
)  # fmt: skip
"""Options for pytest that select tests with "gpu" in their name or file name."""


def run_tests(context: CheckContext, *, files: tuple[str, ...], seconds: float) -> None:
    """Run test files with pytest in one process, and report the outcome of each test.

    `seconds` is the time limit of the check. pytest is killed five seconds earlier.

    Raises:
        Skipped: pytest isn't installed, or some of the tests need other devices.
    """
    if find_spec("pytest") is None:
        raise Skipped("pytest is not installed")
    written = context.folder / "tests.xml"
    places = (f"--junitxml={written}", "--basetemp", str(context.folder / "t"))
    command = [sys.executable, "-m", "pytest", *OPTIONS, *places, *files]
    ended = subprocess.run(command, stdout=sys.stderr, timeout=seconds - 5, check=False)
    if not written.exists():
        raise RuntimeError(f"pytest ended with exit code {ended.returncode}")
    skipped = 0
    for case in ElementTree.parse(written).getroot().iter("testcase"):
        found = {child.tag: child.get("message", "") for child in case}
        wrong = found.get("failure", found.get("error"))
        if "skipped" in found:
            skipped += 1
        else:
            name = case.get("name", "?").removeprefix("test_").replace("_", " ")
            context.claim(name, wrong is None, (wrong or "")[:TEXT_LIMIT])
    if skipped:
        raise Skipped(f"{skipped} tests need other devices")


def main() -> None:
    run_checks({
        name: (partial(run_tests, files=files, seconds=seconds), seconds) for name, (seconds, files) in FILES.items()
    })  # fmt: skip


if __name__ == "__main__":
    main()
