"""Supervisor with real workers, which train a real network on real images."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from engine.contract.events import PhaseChanged, StepMetrics
from engine.contract.job import Job
from engine.contract.protocol import Stop
from engine.runs.connection import RunConnection
from engine.runs.folder import RunFolder, create_run
from engine.runs.launch import Preloader, start_supervisor
from tests.engine.supervisor.supervised import ROOT, events, has_exited, make_images, try_to_connect
from tests.support.waiting import PATIENCE_S, wait_until

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

    def connect() -> RunConnection | None:
        preloader.poll()
        return try_to_connect(run)

    return wait_until(connect, "the supervisor")


def test_preloaded_run_starts_without_imports(preloader: Preloader, images: Path) -> None:
    killed = create_run(job(images, epochs=LONG))
    with preloaded(preloader, killed):
        pid = preloader.pids[str(killed.path)]
        assert os.getsid(pid) == pid
        os.kill(pid, signal.SIGKILL)
    for workers in (1, 2):
        run = create_run(job(images, workers=workers))
        with preloaded(preloader, run) as connection:
            logged = list(events(connection))
        assert any(isinstance(event, StepMetrics) for event in logged)
        assert run.state() == "completed"
        assert (run.path / "supervisor.log").is_file()
        preloader.poll()
        pid = preloader.pids[str(run.path)]
        wait_until(lambda pid=pid: has_exited(pid), "the supervisor to go")  # type: ignore[misc]
    assert "The supervisor was killed by SIGKILL" in (killed.path / "supervisor.log").read_text()


@pytest.mark.long
def test_run_outlives_its_preloader(images: Path) -> None:
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
    (process,) = [child for child in psutil.Process().children() if "--preload" in child.cmdline()]
    process.kill()
    wait_until(lambda: has_exited(process.pid), "the preloader to go")
    run = create_run(job(images, epochs=LONG))
    with preloaded(preloader, run) as connection:
        connection.send(Stop())
        list(events(connection))
    pid = preloader.pids[str(run.path)]
    wait_until(lambda: has_exited(pid), "the supervisor to go")
    assert not preloader.ready
