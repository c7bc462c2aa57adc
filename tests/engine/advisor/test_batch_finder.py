"""The batch-size finder under a cap of address space, against what a search by halves finds there."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest

from engine.advisor.batch_finder import job_of_trial
from engine.advisor.batch_search import MOST_TRIALS
from engine.contract import paths
from engine.contract.finders import FINDING, BatchFound, FinderOrder, FinderProgress
from engine.contract.job import Job

ROOT = Path(__file__).parents[3]
BASE_BYTES = 4_060_000_000
"""Address space that a worker takes before any batch."""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="caps of address space are kept by Linux alone")


def job(**fields: object) -> Job:
    own = {"dataset": str(paths.sample_dataset()), "model": "mnist_cnn", "image_size": 28, "cpu_threads": 1}
    return Job(**(own | fields))


def capped(words: list[str], given: bytes, cap: int, folder: Path) -> bytes:
    result = subprocess.run(
        [sys.executable, *words],
        input=given,
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        preexec_fn=partial(resource.setrlimit, resource.RLIMIT_AS, (cap, cap)),
        check=True,
        timeout=400,
    )
    return result.stdout


def found_under(cap: int, folder: Path, **fields: object) -> BatchFound:
    order = msgspec.json.encode(FinderOrder("batch", job(**fields)))
    *progress, found = map(FINDING.decode, capped(["-m", "engine.advisor"], order, cap, folder).splitlines())
    assert all(isinstance(message, FinderProgress) for message in progress)
    assert isinstance(found, BatchFound)
    assert not list(folder.glob("footplate-*"))
    assert not paths.runs_folder().exists()
    return found


def fits(size: int, cap: int, folder: Path) -> bool:
    """Whether steps with batches of `size` can be made, by the worker itself."""
    code = """
import json, sys, tempfile
from pathlib import Path
import msgspec
from engine.advisor.workers import import_for, run_workers
from engine.contract.job import Job
job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
import_for(job)
with tempfile.TemporaryDirectory() as folder:
    failed = run_workers(job, "engine.advisor.batch_worker:run", Path(folder), lambda event: None)
print(json.dumps(failed.kind if failed else "fits"))
"""
    kind = json.loads(capped(["-c", code], msgspec.json.encode(job_of_trial(job(), size)), cap, folder))
    assert kind in ("fits", "out_of_memory")
    return bool(kind == "fits")


def test_that_the_largest_size_is_found_with_memory_and_speed_and_nothing_is_left(tmp_path: Path) -> None:
    found = found_under(BASE_BYTES + 150_000_000, tmp_path)
    assert len(found.trials) <= MOST_TRIALS
    assert found.largest is not None
    assert 60 < found.largest < 400
    largest = next(trial for trial in found.trials if trial.size == found.largest)
    assert largest.fits
    assert largest.limit == "address space"
    assert largest.memory_bytes is not None
    assert largest.limit_bytes == BASE_BYTES + 150_000_000 >= largest.memory_bytes
    assert largest.images_per_second
    assert found.knee in [trial.size for trial in found.trials if trial.fits]
    assert f"Batches of {found.largest} are the largest that fit" in found.why


@pytest.mark.long
@pytest.mark.timeout(900)
def test_that_the_found_size_is_within_a_twentieth_of_what_a_search_by_halves_finds(tmp_path: Path) -> None:
    cap = BASE_BYTES + 500_000_000
    found = found_under(cap, tmp_path)
    assert len(found.trials) <= MOST_TRIALS
    assert found.largest is not None
    assert fits(found.largest, cap, tmp_path)
    low, high = found.largest, 2 * found.largest
    assert not fits(high, cap, tmp_path)
    while high - low > 0.01 * low:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle, cap, tmp_path) else (low, middle)
    assert found.largest >= 0.95 * low


@pytest.mark.long
def test_that_where_not_even_a_small_batch_fits_the_remedy_is_told(tmp_path: Path) -> None:
    found = found_under(BASE_BYTES, tmp_path, image_size=512)  # whose last layer alone takes 2 GB
    assert found.largest is None
    assert "Not even batches of" in found.why
    assert "smaller image size" in found.remedy


@pytest.mark.long
def test_that_two_ranks_get_sizes_that_divide_and_have_their_limits_told_by_rank(tmp_path: Path) -> None:
    found = found_under(5_000_000_000, tmp_path, strategy="ddp", devices=("cpu", "cpu"))
    assert all(trial.size % 2 == 0 for trial in found.trials)
    assert found.largest is not None
    assert found.largest > 100
