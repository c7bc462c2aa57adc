"""Supervisor with real workers that train a real network on real images."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from engine.contract.events import CheckpointSaved, Failed, PhaseChanged, Planned, Restarting, RunFinished, StepMetrics
from engine.contract.job import Job
from engine.contract.protocol import Pause, Stop
from engine.runs.connection import NotRunning, RunConnection
from engine.runs.folder import RunFolder, create_run
from engine.runs.launch import Preloader, start_supervisor
from engine.runs.resume import job_to_resume, last_execution, save_next_job
from tests.engine.supervisor.supervised import PATIENCE_S, ROOT, events, has_exited, make_images, wait_until

LONG = 100_000


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return make_images(tmp_path / "images")


def job(images: Path, *, epochs: int = 1, workers: int = 1) -> Job:
    return Job.from_fields(
        dataset=str(images),
        model="mnist_cnn",
        strategy="ddp" if workers > 1 else "single",
        devices=("cpu",) * workers,
        epochs=epochs,
        batch_size=8,
        loader_workers=1,
    )


def connect(run: RunFolder) -> RunConnection:
    wait_until(lambda: run.state() != "starting", "the supervisor")
    return RunConnection(run)


@pytest.mark.long
def test_real_run_completes_with_checkpoints(images: Path) -> None:
    run = create_run(job(images))
    pid = start_supervisor(run)
    with connect(run) as connection:
        logged = list(events(connection))
    finished = logged[-1]
    assert isinstance(finished, RunFinished)
    assert finished.outcome == "completed", finished
    assert set(finished.checkpoints) == {"checkpoints/best.pt", "checkpoints/last.pt"}
    assert all((run.path / path).stat().st_size > 0 for path in finished.checkpoints)
    assert any(isinstance(event, StepMetrics) for event in logged)
    assert run.state() == "completed"
    wait_until(lambda: has_exited(pid), "the supervisor to go")


@pytest.mark.long
def test_stop_saves_the_last_state_on_all_ranks(images: Path) -> None:
    run = create_run(job(images, epochs=LONG, workers=2))
    pid = start_supervisor(run)
    with connect(run) as connection:
        stream = events(connection)
        next(event for event in stream if isinstance(event, StepMetrics))
        asked = time.monotonic()
        connection.send(Stop())
        rest = list(stream)
        took = time.monotonic() - asked
    finished = rest[-1]
    assert isinstance(finished, RunFinished)
    assert finished.outcome == "stopped", finished
    assert finished.cause == ""
    assert any(isinstance(event, CheckpointSaved) and event.kind == "last" for event in run.events())
    assert took < 20
    wait_until(lambda: has_exited(pid), "the supervisor to go")


def test_stop_during_imports_ends_the_run(images: Path) -> None:
    run = create_run(job(images, epochs=LONG))
    pid = start_supervisor(run)
    with connect(run) as connection:
        stream = events(connection)
        next(event for event in stream if isinstance(event, PhaseChanged))
        connection.send(Stop())
        kinds = [type(event).__name__ for event in stream]
    assert kinds == ["CommandReceived", "PhaseChanged", "DevicesFree", "RunFinished"]
    assert run.state() == "stopped"
    wait_until(lambda: has_exited(pid), "the supervisor to go")


@pytest.mark.long
def test_killed_rank_restarts_and_the_run_resumes_later(preloader: Preloader, images: Path) -> None:
    run = create_run(job(images, epochs=LONG, workers=2).with_fields(checkpoint_steps=5))
    with preloaded(preloader, run) as connection:
        stream = events(connection)
        saved = next(event for event in stream if isinstance(event, CheckpointSaved) and event.kind == "last")
        preloader.poll()
        pid = preloader.pids[str(run.path)]
        workers = [child for child in psutil.Process(pid).children() if child.name().startswith("footplate-w")]
        assert len(workers) == 2
        next(worker for worker in workers if worker.name() == "footplate-w1").kill()
        killed_at = time.time()
        restarting = next(event for event in stream if isinstance(event, Restarting))
        assert (restarting.rank, restarting.kind, restarting.attempt) == (1, "fault", 1)
        assert "SIGKILL" in restarting.cause
        planned = next(event for event in stream if isinstance(event, Planned))
        again = next(event for event in stream if isinstance(event, StepMetrics))
        assert saved.step <= planned.from_step < again.step
        assert again.time - killed_at < 10, "2 s are measured by the benchmark, on a machine with nothing else to do"
        assert not any(worker.is_running() for worker in workers)
        connection.send(Pause())
        rest = list(stream)
    assert [event for event in rest if isinstance(event, Failed)] == []
    assert run.state() == "paused"
    last = next(event for event in reversed(rest) if isinstance(event, CheckpointSaved) and event.kind == "last")

    changed, problems = job_to_resume(run, {"devices": ["cpu"], "strategy": "single"})
    assert changed is not None, problems
    save_next_job(run, changed)
    preloader.start_run(run)
    wait_until(lambda: last_execution(run) == 2, "the next execution")
    with RunConnection(run, rest[-1].n + 1) as connection:
        stream = events(connection)
        planned = next(event for event in stream if isinstance(event, Planned))
        assert planned.from_step == last.step
        connection.send(Stop())
        list(stream)
    assert run.state() == "stopped"
    preloader.poll()
    wait_until(lambda: has_exited(preloader.pids[str(run.path)]), "the supervisor to go")


@pytest.mark.long
def test_preloader_is_ready_without_optional_libraries(tmp_path: Path) -> None:
    (tmp_path / "timm.py").write_text("raise ImportError")
    process = subprocess.Popen(
        [sys.executable, "-m", "engine.supervisor", "--preload"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
    )
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"ready\n"
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0


@pytest.fixture(scope="module")
def preloader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Preloader]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOOTPLATE_HOME", str(tmp_path_factory.mktemp("home")))
        one = Preloader()
        one.start()
        deadline = time.monotonic() + 120
        while not one.ready:
            assert select.select([one], [], [], deadline - time.monotonic())[0]
            one.poll()
            assert one.alive
        yield one
        one.close()
        assert not one.alive


def preloaded(preloader: Preloader, run: RunFolder) -> RunConnection:
    preloader.start_run(run)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return RunConnection(run)
        except NotRunning:
            assert time.monotonic() < deadline
            time.sleep(0.005)


def test_preloaded_run_starts_without_imports(
    preloader: Preloader, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for workers in (1, 2):
        run = create_run(job(images, workers=workers))
        with preloaded(preloader, run) as connection:
            logged = list(events(connection))
        assert any(isinstance(event, StepMetrics) for event in logged)
        assert run.state() == "completed"
        preloader.poll()
        pid = preloader.pids[str(run.path)]
        wait_until(lambda pid=pid: has_exited(pid), "the supervisor to go")  # type: ignore[misc]


@pytest.mark.long
def test_run_outlives_its_preloader(
    images: Path,
) -> None:
    preloader = Preloader()
    preloader.start()
    run = create_run(job(images, epochs=LONG))
    with preloaded(preloader, run) as connection:
        pid = preloader.pids[str(run.path)]
        assert not preloader.ready
        connection.send(Stop())
        list(events(connection))
    assert run.state() == "stopped"
    wait_until(lambda: has_exited(pid), "the supervisor to go")
    wait_until(lambda: preloader.poll() or preloader.ready, "the preloader")  # type: ignore[func-returns-value]
    run = create_run(job(images, epochs=LONG))
    with preloaded(preloader, run) as connection:
        stream = events(connection)
        next(event for event in stream if isinstance(event, StepMetrics))
        preloader.close()
        pid = preloader.pids[str(run.path)]
        assert os.getsid(pid) == pid
        assert len([event for event, _ in zip(stream, range(5), strict=False)]) == 5
        connection.send(Stop())
        list(stream)
    assert run.state() == "stopped"
    wait_until(lambda: has_exited(pid), "the supervisor to go")


def test_run_starts_without_preloader(preloader: Preloader, images: Path) -> None:
    assert preloader._process is not None
    preloader._process.kill()
    preloader._process.wait()
    run = create_run(job(images, epochs=LONG))
    with preloaded(preloader, run) as connection:
        connection.send(Stop())
        list(events(connection))
    pid = preloader.pids[str(run.path)]
    wait_until(lambda: has_exited(pid), "the supervisor to go")
    assert not preloader.ready
