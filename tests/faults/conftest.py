"""Fixtures for real runs with faults, and for equal runs without faults as references."""

from __future__ import annotations

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
from tests.faults.real_runs import MODEL, FinalCheckpoints, Hold, RealRun, Starter
from tests.support.consent import permit_model_file

Make = Callable[..., Job]
StartRun = Callable[..., RealRun]
WriteModel = Callable[[str], dict[str, str]]
Follow = Callable[[str], RealRun]
Uninterrupted = Callable[[Job], FinalCheckpoints]
StartStepwise = Callable[..., RealRun]

EPOCHS = 3
"""Number of epochs, with six steps each. The disk fails in the second epoch."""


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create 48 training and 12 validation images, and return the dataset folder."""
    return make_images(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "net.py"
    path.write_text(MODEL)
    return path


@pytest.fixture
def write_permitted_model(tmp_path: Path) -> WriteModel:
    """Return a function that writes a model file, and returns the job fields that select it and permit its execution."""

    def write(text: str) -> dict[str, str]:
        path = tmp_path / "other_net.py"
        path.write_text(text)
        return {"model": str(path), "model_file_sha256": permit_model_file(path)}

    return write


@pytest.fixture
def job(images: Path, model_file: Path) -> Make:
    """Return a function that creates jobs on `cpus` CPU workers with bit-exact results.

    An epoch has 6 steps, and a checkpoint is saved after every step. `fields` override fields of the job.
    """

    def make(strategy: str = "single", cpus: int = 1, **fields: Any) -> Job:
        values: dict[str, Any] = {
            "dataset": str(images),
            "model": str(model_file),
            "model_file_sha256": permit_model_file(model_file),
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
    """Return the job fields that select the model `STEPWISE`, which a test stops before any step through `Gate`."""
    return {"model": str(stepwise_file), "model_file_sha256": permit_model_file(stepwise_file)}


@pytest.fixture
def gate(separate_home: Path) -> Gate:
    return Gate(separate_home)


@pytest.fixture
def runs() -> Iterator[list[RealRun]]:
    """Yield a list to which a test adds its runs. After the test, kill the remaining processes of these runs."""
    runs: list[RealRun] = []
    yield runs
    for run in runs:
        run.kill_all()
        run.wait_for_processes_to_end()
        run.remove_socket()


@pytest.fixture
def start_run(starter: Starter, runs: list[RealRun]) -> StartRun:
    """Return a function that creates a run of a job and starts it."""

    def start(job: Job, **options: Any) -> RealRun:
        runs.append(RealRun(starter, create_run(job), **options))
        return runs[-1].start()

    return start


@pytest.fixture
def start_held(start_run: StartRun, hold: Hold) -> StartRun:
    """Return a function that starts a run and waits until `hold` stops it in its fifth step, after two checkpoints."""

    def start(job: Job, **options: Any) -> RealRun:
        hold.set_action("step5")
        run = start_run(job, **options)
        hold.wait_until_reached()
        run.wait_for_checkpoint(2)
        return run

    return start


@pytest.fixture
def start_cold(starter: Starter, runs: list[RealRun]) -> StartRun:
    """Return a function that creates a run of a job and starts it in a new interpreter, like a command in a terminal."""

    def start(job: Job) -> RealRun:
        runs.append(RealRun(starter, create_run(job)))
        return runs[-1].start_cold()

    return start


@pytest.fixture
def follow(starter: Starter, runs: list[RealRun]) -> Follow:
    """Return a function that returns the run with a given id, which another process has started."""

    def find(run_id: str) -> RealRun:
        runs.append(RealRun(starter, RunFolder(paths.runs_folder() / run_id)))
        return runs[-1]

    return find


@pytest.fixture(scope="session")
def checkpoint_cache() -> dict[bytes, FinalCheckpoints]:
    """Return a cache of the final checkpoints of uninterrupted runs. Keys are jobs, encoded as JSON."""
    return {}


@pytest.fixture
def uninterrupted(start_run: StartRun, checkpoint_cache: dict[bytes, FinalCheckpoints]) -> Uninterrupted:
    """Return a function that trains a job without interruption, and returns the contents of its final checkpoints."""

    def end_of(job: Job) -> FinalCheckpoints:
        key = msgspec.json.encode(job.with_fields(restarts=0))
        if key not in checkpoint_cache:
            checkpoint_cache[key] = start_run(job).completed().final_checkpoints
        return checkpoint_cache[key]

    return end_of


@pytest.fixture
def hold(separate_home: Path) -> Hold:
    return Hold(separate_home)


@pytest.fixture
def small_disk(separate_home: Path) -> Iterator[Path]:
    """Mount a file system of 3 MiB as the folder of all runs, and yield this folder.

    About ten checkpoints fit on it. It is unmounted after the test.
    """
    folder = separate_home / "runs"
    folder.mkdir(parents=True)
    mount("-t", "tmpfs", "-o", "size=3m", "footplate-test", str(folder))
    yield folder
    unmount(folder)


@pytest.fixture
def start_stepwise(job: Make, start_run: StartRun, gate: Gate, stepwise: dict[str, str]) -> StartStepwise:
    """Return a function that starts a run and waits until `gate` stops it after its fourth step has been saved."""

    def start(epochs: int = EPOCHS, **options: Any) -> RealRun:
        gate.permit_steps(4)
        run = start_run(job(epochs=epochs, **stepwise), **options)
        gate.permit_steps(4, run)
        return run

    return start
