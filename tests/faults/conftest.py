"""Real runs for the fault suite, and the same runs without a fault to compare with."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.contract.job import Job
from engine.runs.folder import RunFolder, create_run
from engine.system import paths
from tests.engine.supervisor.supervised import make_images
from tests.faults.damage import STEPWISE, Gate, mount, unmount
from tests.faults.real_runs import MODEL, End, Hold, RealRun, Starter
from tests.support.consent import agreed

Make = Callable[..., Job]
Begin = Callable[..., RealRun]
Allowed = Callable[[str], dict[str, str]]
Follow = Callable[[str], RealRun]
Whole = Callable[[Job], End]
Started = Callable[..., RealRun]

EPOCHS = 3
"""Of six steps, in a run on a disk that is to fail: the second ends while it takes nothing."""


@pytest.fixture(scope="session")
def starter() -> Iterator[Starter]:
    if sys.platform != "linux":
        pytest.skip("processes are forked, and looked at in /proc")
    starter = Starter()
    yield starter
    starter.close()


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """48 images to train on and 12 to validate on."""
    return make_images(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "net.py"
    path.write_text(MODEL)
    return path


@pytest.fixture
def allowed(tmp_path: Path) -> Allowed:
    """Writes a model file; the fields of a job that name it and allow it to run."""

    def write(text: str) -> dict[str, str]:
        path = tmp_path / "other_net.py"
        path.write_text(text)
        return {"model": str(path), "model_file_sha256": agreed(path)}

    return write


@pytest.fixture
def job(images: Path, model_file: Path) -> Make:
    """A job on the CPU that is the same training to the bit however often it is made; what is given replaces fields.

    It has 6 steps an epoch and a checkpoint after every step.
    """

    def make(strategy: str = "single", cpus: int = 1, **fields: Any) -> Job:
        values: dict[str, Any] = {
            "dataset": str(images),
            "model": str(model_file),
            "model_file_sha256": agreed(model_file),
            "image_size": 28,
            "batch_size": 8,
            "epochs": 3,
            "optimizer": "adam",
            "checkpoint_steps": 1,
            "loader_workers": 1,
            "cpu_threads": 1,
            "memory_format": "contiguous",
            "precision": "fp32",
            "compile": "off",
            "deterministic": True,
        }
        return Job.from_fields(**(values | {"strategy": strategy, "devices": ("cpu",) * cpus} | fields))

    return make


@pytest.fixture(scope="session")
def stepwise_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stepwise") / "stepwise.py"
    path.write_text(STEPWISE)
    return path


@pytest.fixture
def stepwise(stepwise_file: Path) -> dict[str, str]:
    """The fields of a job that train `STEPWISE`."""
    return {"model": str(stepwise_file), "model_file_sha256": agreed(stepwise_file)}


@pytest.fixture
def gate(own_home: Path) -> Gate:
    return Gate(own_home)


@pytest.fixture
def known() -> Iterator[list[RealRun]]:
    """The runs of a test. What still runs of them at its end is ended."""
    runs: list[RealRun] = []
    yield runs
    for run in runs:
        run.kill_all()
        run.wait_until_none_is_left()
        run.remove_socket()


@pytest.fixture
def begin(starter: Starter, known: list[RealRun]) -> Begin:
    """Begins runs of jobs."""

    def start(job: Job, **options: Any) -> RealRun:
        known.append(RealRun(starter, create_run(job), **options))
        return known[-1].begin()

    return start


@pytest.fixture
def begin_held(begin: Begin, hold: Hold) -> Begin:
    """Begins runs of jobs, which stand still in their first epoch with some checkpoints behind them."""

    def start(job: Job, **options: Any) -> RealRun:
        hold.ask("step5")
        run = begin(job, **options)
        hold.wait_until_reached()
        run.wait_for_checkpoint(2)
        return run

    return start


@pytest.fixture
def begin_anew(starter: Starter, known: list[RealRun]) -> Begin:
    """Begins runs of jobs as a terminal's command does, which need seconds to import what they need."""

    def start(job: Job) -> RealRun:
        known.append(RealRun(starter, create_run(job)))
        return known[-1].begin_anew()

    return start


@pytest.fixture
def follow(starter: Starter, known: list[RealRun]) -> Follow:
    """Looks at runs that somebody else has begun, by their ids."""

    def find(run_id: str) -> RealRun:
        known.append(RealRun(starter, RunFolder(paths.runs_folder() / run_id)))
        return known[-1]

    return find


@pytest.fixture(scope="session")
def ends() -> dict[bytes, End]:
    """What uninterrupted runs ended with, by their jobs."""
    return {}


@pytest.fixture
def whole(begin: Begin, ends: dict[bytes, End]) -> Whole:
    """What an uninterrupted run of a job ends with: what its last.pt and its best.pt hold."""

    def end_of(job: Job) -> End:
        key = msgspec.json.encode(job.with_fields(restarts=0))
        if key not in ends:
            ends[key] = begin(job).completed().end
        return ends[key]

    return end_of


@pytest.fixture
def hold(own_home: Path) -> Hold:
    return Hold(own_home)


@pytest.fixture
def small_disk(own_home: Path) -> Iterator[Path]:
    """The folder of the runs, on a disk of 3 MiB: some ten checkpoints."""
    folder = own_home / "runs"
    folder.mkdir(parents=True)
    mount("-t", "tmpfs", "-o", "size=3m", "footplate-test", str(folder))
    yield folder
    unmount(folder)


@pytest.fixture
def started(job: Make, begin: Begin, gate: Gate, stepwise: dict[str, str]) -> Started:
    """A run that stands still after its fourth step, which it has saved."""

    def start(epochs: int = EPOCHS, **options: Any) -> RealRun:
        gate.up_to(4)
        run = begin(job(epochs=epochs, **stepwise), **options)
        gate.up_to(4, run)
        return run

    return start
