"""Batch-size finder with limited memory, compared with bisection and with real training."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest

from engine.advisor import batch_finder
from engine.advisor.batch_finder import WORKER, create_trial_job, describe_result, find_batch
from engine.advisor.batch_search import MAX_TRIALS, Probe, SearchResult
from engine.advisor.trial_results import write_result
from engine.contract.advice import FINDING, BatchFound, FinderRequest
from engine.contract.events import Failed
from engine.contract.job import Job
from engine.contract.messages import Progress, Refused
from engine.processes.requests import RequestError
from engine.system import paths
from tests.support.clock import Clock
from tests.support.deep import write_deep_model

ROOT = Path(__file__).parents[3]
TRAINING = "engine.training.worker:run"
BASE_BYTES = 4_060_000_000
"""Address space in bytes that a worker uses before it loads a batch."""
TRIES = 3
"""Number of trials that must succeed for a batch size that fits.

The memory of equal trials differs by up to 5%, since glibc places the activations differently on its heap.
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="caps of address space are kept by Linux alone")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return a job whose model needs 5 MB for each image."""
    return Job.from_fields(
        dataset=str(paths.sample_dataset()), image_size=256, cpu_threads=1, **write_deep_model(tmp_path)
    )


def run_limited(arguments: list[str], given: bytes, cap: int, folder: Path, kind: int = resource.RLIMIT_AS) -> bytes:
    result = subprocess.run(
        [sys.executable, *arguments],
        input=given,
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        preexec_fn=partial(resource.setrlimit, kind, (cap, cap)),
        check=True,
        timeout=400,
    )
    return result.stdout


def find_under(cap: int, job: Job, folder: Path, kind: int = resource.RLIMIT_AS) -> BatchFound:
    request = msgspec.json.encode(FinderRequest("batch", job))
    lines = run_limited(["-m", "engine.advisor"], request, cap, folder, kind).splitlines()
    *progress, last = map(FINDING.decode, lines)
    assert all(isinstance(message, Progress) for message in progress)
    assert not isinstance(last, Refused), last.problems
    found = last.answer
    assert isinstance(found, BatchFound)
    assert not list(folder.glob("footplate-*"))
    assert not paths.runs_folder().exists()
    return found


def fits(job: Job, cap: int, folder: Path, kind: int, function: str = WORKER) -> bool:
    """Return True if a trial or a training of `job` completes in workers with a resource limit.

    `kind` is the limited resource as in `resource.setrlimit`, and `cap` is the limit. `function` runs in the workers.
    """
    code = """
import json, sys, tempfile
from pathlib import Path
import msgspec
from engine.advisor.workers import import_for, run_workers
from engine.contract.job import Job
from engine.contract.messages import Progress, Refused
job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
import_for(job)
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "checkpoints").mkdir()
    failed = run_workers(job, sys.argv[1], Path(folder), lambda event: None)
print(json.dumps(failed.kind if failed else "fits"))
"""
    answer = json.loads(run_limited(["-c", code, function], msgspec.json.encode(job), cap, folder, kind))
    assert answer in ("fits", "out_of_memory")
    return bool(answer == "fits")


def test_finder_tries_sizes_until_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find the batch size for two workers whose memory suffices for 100 images, with trials of a second."""
    clock, reports, failure = Clock(50.0), list[Progress](), Failed(cause="A kernel failed.")

    def run_trial(trial: Job, function: str, folder: Path, _emit: object) -> Failed | None:
        size = trial.training.batch_size
        clock.now += 1.0
        assert (function, trial.data.picture_cache, trial.model.freeze_epochs) == (WORKER, "off", 0)
        if size > 100:
            return failure
        for rank in range(2):
            write_result(str(folder), rank, Probe(100 * size / (size + 20), {"memory": (size, 100)}))
        return None

    monkeypatch.setattr(batch_finder, "time", clock)
    monkeypatch.setattr(batch_finder, "import_for", lambda _job: None)
    monkeypatch.setattr(batch_finder, "run_workers", run_trial)
    job = Job.from_fields(strategy="ddp", devices=("cpu", "cpu"), batch_size=3, freeze_epochs=2)
    frozen = job.with_fields(epochs=2)  # throughout the training
    assert create_trial_job(frozen, 8).model.freeze_epochs == 2
    found = find_batch(job, reports.append)
    assert found.largest is not None
    assert 95 <= found.largest <= 100
    sizes = [trial.size for trial in found.trials]
    assert sizes == sorted(sizes)
    assert not any(size % 2 for size in sizes)
    assert [trial.fits for trial in found.trials] == [size <= 100 for size in sizes]
    assert (reports[0].fraction, reports[1].fraction) == (0.0, 0.05)
    assert [(each.fraction, each.seconds_left) for each in reports[2:4]] == [
        (pytest.approx(0.05 + 0.95 / 8), 7.0),
        (pytest.approx(0.05 + 0.95 / 4), 6.0),
    ]
    assert len(reports) == 1 + len(found.trials)

    monkeypatch.setattr(batch_finder, "BUDGET_S", 4.0)
    found = find_batch(job, reports.append)
    assert (found.ended_by, [trial.size for trial in found.trials]) == ("time", [8, 32])
    assert reports[-1].seconds_left == 3.0

    fixed = job.with_fields(accumulation=64)  # the first size is too large
    with pytest.raises(RequestError) as caught:
        find_batch(fixed, reports.append)
    assert caught.value.problems[0].message == "A kernel failed."
    failure = Failed(cause="No memory.", kind="out_of_memory")
    assert find_batch(fixed, reports.append).largest is None


@pytest.mark.long
def test_finder_reports_size_memory_and_speed(job: Job, tmp_path: Path) -> None:
    cap = BASE_BYTES + 1_000_000_000
    found = find_under(cap, job, tmp_path)
    assert len(found.trials) <= MAX_TRIALS
    assert found.largest is not None
    assert 80 < found.largest < 160  # 98 to 130, depending on torch's version
    largest = next(trial for trial in found.trials if trial.size == found.largest)
    assert largest.fits
    assert largest.limit == "address space"
    assert largest.memory_bytes is not None
    assert largest.limit_bytes == cap >= largest.memory_bytes
    assert largest.images_per_second
    assert found.knee in [trial.size for trial in found.trials if trial.fits]
    assert f"The largest batch that fits is {found.largest}" in found.why


@pytest.mark.parametrize(
    ("searched", "ended_by", "arguments"),
    [
        (SearchResult({4: Probe(9, {"memory": (1, 2)}, 17), 17: Probe(9, {"memory": (1, 2)}, 17)}, 17, 17), "dataset", "only 17 images"),
        (SearchResult({4: Probe(9, {"memory": (1, 2)}, 99), 64: None, 128: None}, 4, 99, 16), "time", "One of 64 does not fit"),
        (SearchResult({4: Probe(9, {"memory": (1, 2)}, 99), 5: None}, 4, 99), "memory", "little room to spare"),
    ],
)  # fmt: skip
def test_result_states_end_reason(searched: SearchResult, ended_by: str, arguments: str) -> None:
    found = describe_result(searched)
    assert found.ended_by == ended_by
    assert arguments in found.why


def test_result_has_the_knee_and_the_memory_closest_to_its_limit() -> None:
    memory = {"memory of rank 0": (1, 4), "GPU 0 of rank 0": (3, 4), "GPU 1 of rank 1": (5, 8)}
    trials: dict[int, Probe | None] = {size: Probe(speed, memory, 99) for size, speed in ((4, 8.0), (16, 16.0))}
    found = describe_result(SearchResult(trials, 16, 99))
    assert (found.largest, found.knee) == (16, 16)
    assert found.why.endswith(" Throughput still grows up to there: 16 images/s.")
    row = found.trials[0]
    assert (row.size, row.images_per_second) == (4, 8.0)
    assert (row.limit, row.memory_bytes, row.limit_bytes) == ("GPU 0", 3, 4)
    found = describe_result(SearchResult(trials | {64: Probe(16.6, memory, 99)}, 64, 99))
    assert (found.largest, found.knee) == (64, 16)
    assert re.findall(r"[\d.]*\d", found.why.partition("Beyond")[2]) == ["16", "5", "16", "16", "17", "64"]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "cap"),
    [(resource.RLIMIT_AS, BASE_BYTES + 4_000_000_000), (resource.RLIMIT_DATA, 5_400_000_000)],
    ids=["address_space", "memory"],
)
def test_finder_is_within_ten_percent_of_bisection(kind: int, cap: int, job: Job, tmp_path: Path) -> None:
    many = tmp_path / "many"
    for image in paths.sample_dataset().rglob("*.png"):
        for number in range(3):
            copy = many / image.relative_to(paths.sample_dataset()).with_name(f"{image.stem}-{number}.png")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(image, copy)
    job = job.with_fields(dataset=str(many), epochs=2)
    found = find_under(cap, job, tmp_path, kind)
    assert len(found.trials) <= MAX_TRIALS
    assert found.largest is not None
    assert fits(job.with_fields(batch_size=found.largest), cap, tmp_path, kind, TRAINING)

    def always_fits(size: int) -> bool:
        return all(fits(create_trial_job(job, size), cap, tmp_path, kind) for _ in range(TRIES))

    low, high = found.largest, round(1.25 * found.largest)
    assert not always_fits(high)
    while high - low > 0.01 * low:
        middle = (low + high) // 2
        low, high = (middle, high) if always_fits(middle) else (low, middle)
    assert 0.9 * low <= found.largest


@pytest.mark.long
@pytest.mark.timeout(900)
def test_finder_gives_remedy_if_nothing_fits(job: Job, tmp_path: Path) -> None:
    large = job.with_fields(image_size=4096)  # 1.3 GB each
    # With 150 MB less, the stack of a thread sometimes doesn't fit, which isn't recognized as a lack of memory.
    found = find_under(BASE_BYTES + 1_150_000_000, large, tmp_path)
    assert found.largest is None
    assert "Even a batch of" in found.why
    assert "smaller image size" in found.remedy


@pytest.mark.long
@pytest.mark.timeout(900)
def test_finder_with_two_ranks_tries_even_sizes(job: Job, tmp_path: Path) -> None:
    together = job.with_fields(strategy="ddp", devices=("cpu", "cpu"))
    found = find_under(BASE_BYTES + 2_000_000_000, together, tmp_path)
    assert all(trial.size % 2 == 0 for trial in found.trials)
    assert found.largest is not None
    assert found.largest > 200
