"""Real ranks that die or hang: they are reported at once, and no process remains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.contract.events import Failed, RunFinished, StepMetrics
from engine.contract.job import Job
from engine.processes.watchdog import LIMITS
from engine.runs.connection import RunConnection
from engine.runs.folder import RunFolder, create_run
from tests.engine.supervisor.supervised import ROOT, events, make_images, wait_until
from tests.support.cases import some
from tests.support.consent import agreed

NAMED_S = 2.0
"""Seconds to report a killed rank."""
SILENT_S, STUCK_S = 4.0, 6.0
ENDED_S = 15.0
"""Seconds for a shutdown on a busy machine."""

GROUPS: dict[str, dict[str, Any]] = {
    "ddp": {"devices": ("cpu",) * 2},
    "fsdp": {"devices": ("cpu",) * 2},
    "model_parallel": {"devices": ("cpu",) * 2},
    "pipeline": {"devices": ("cpu",) * 2, "microbatches": 4},
    "ddp_pipeline": {"devices": ("cpu",) * 4, "microbatches": 2},
    "hsdp": {"devices": ("cpu",) * 4},
}

SLEEPER = """
import os
import time
import torch
from torch import nn

@torch.fx.wrap
def maybe_hang(values):
    if os.path.exists(__file__ + ".hang") and torch.distributed.get_rank() == 1:
        time.sleep(3600)
    return values * 1

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, classes))

    def forward(self, images):
        return maybe_hang(self.head(self.stem(images)))

def build_model(num_classes):
    return Net(num_classes)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a home for supervisors that outlive a single test."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def forker(home: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("forking_supervisor.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "FOOTPLATE_HOME": str(home)},
    )
    with process:
        yield process


class Run:
    """Run that trains, with its processes by rank."""

    def __init__(self, folder: RunFolder, pid: int) -> None:
        self.folder = folder
        wait_until(lambda: folder.state() != "starting", "the supervisor")
        self.connection = RunConnection(folder)
        self.stream = events(self.connection)
        self.supervisor = psutil.Process(pid)

    def train(self, step: int) -> dict[int, psutil.Process]:
        """Wait for `step` and return the workers."""
        expected = (Failed, RunFinished)
        logged = next(
            e for e in self.stream if isinstance(e, expected) or (isinstance(e, StepMetrics) and e.step >= step)
        )
        assert isinstance(logged, StepMetrics), logged
        names = {child: child.name() for child in self.supervisor.children()}
        self.workers = {int(name[11:]): child for child, name in names.items() if name.startswith("footplate-w")}
        return self.workers

    def end(self) -> tuple[Failed, float]:
        """Read to the end, wait until all processes have ended, and return the failure with its delay in seconds."""
        rest = list(self.stream)
        self.connection.close()
        (failed,) = [event for event in rest if isinstance(event, Failed)]
        assert isinstance(rest[-1], RunFinished)
        assert rest[-1].outcome == self.folder.state() == "failed"
        assert rest[-1].cause == failed.cause
        assert rest[-1].time - failed.time < ENDED_S
        _, alive = psutil.wait_procs([self.supervisor, *self.workers.values()], timeout=ENDED_S)
        assert alive == []
        return failed, failed.time


@pytest.fixture
def start(forker: subprocess.Popen[str], tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Start long runs, as in `start("ddp", silent=4.0, epochs=…)`."""
    images = make_images(tmp_path / "images")
    runs: list[Run] = []

    def starter(strategy: str, silent: float = 0.0, stuck: float = 0.0, **fields: Any) -> Run:
        values: dict[str, Any] = {"model": "mnist_cnn", "epochs": 100_000, "batch_size": 8, "loader_workers": 1}
        values["restarts"] = 0  # only the end of the group matters here
        folder = create_run(
            Job.from_fields(dataset=str(images), strategy=strategy, **(values | GROUPS[strategy] | fields))
        )
        assert forker.stdin is not None
        assert forker.stdout is not None
        forker.stdin.write(f"{silent} {stuck} {folder.path}\n")
        forker.stdin.flush()
        runs.append(Run(folder, int(forker.stdout.readline())))
        return runs[-1]

    yield starter
    for run in runs:
        if run.supervisor.is_running():
            run.supervisor.kill()  # its workers end with it


@pytest.mark.parametrize("strategy", some(GROUPS, everyday=("hsdp",)))
def test_killed_rank_fails_the_run_at_once(start: Callable[..., Run], strategy: str) -> None:
    run = start(strategy)
    victim = run.train(3)[1]
    killed_at = time.time()
    victim.kill()
    failed, named_at = run.end()
    assert (failed.rank, failed.kind) == (1, "fault")
    assert "Rank 1 was killed by SIGKILL" in failed.cause
    assert named_at - killed_at < NAMED_S


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "pipeline"])
def test_stopped_rank_fails_the_run_in_seconds(start: Callable[..., Run], strategy: str) -> None:
    run = start(strategy, SILENT_S, STUCK_S)
    victim = run.train(3)[1]
    victim.send_signal(signal.SIGSTOP)
    stopped_at = time.time()
    failed, named_at = run.end()
    assert failed.rank == 1
    assert "Rank 1 has not responded for" in failed.cause
    assert named_at - stopped_at < SILENT_S + 5


@pytest.mark.parametrize("strategy", some(("ddp", "fsdp", "pipeline"), everyday=("pipeline",)))
def test_hanging_rank_is_reported_with_its_location(
    start: Callable[..., Run], strategy: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "net.py"
    file.write_text(SLEEPER)
    with monkeypatch.context() as patch:
        patch.setenv("FOOTPLATE_HOME", str(home))
        sha256 = agreed(file)
    run = start(strategy, SILENT_S, STUCK_S, model=str(file), model_file_sha256=sha256, image_size=28)
    run.train(20)
    Path(f"{file}.hang").touch()
    failed, _ = run.end()
    assert failed.rank == 1
    assert failed.step is not None
    assert "Rank 1 blocks the run" in failed.cause
    assert ", in maybe_hang (net.py, line 10), while rank 0 waits" in failed.cause


@pytest.mark.long
def test_stopped_rank_fails_with_default_limits(start: Callable[..., Run]) -> None:
    run = start("ddp")
    victim = run.train(3)[0]
    victim.send_signal(signal.SIGSTOP)
    stopped_at = time.time()
    failed, named_at = run.end()
    assert failed.rank == 0
    assert LIMITS.silent - 2 < named_at - stopped_at < LIMITS.silent + 5
