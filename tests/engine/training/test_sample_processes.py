"""Samples of user-defined classes that processes load, compared with those that threads load."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from engine.contract.events import Failed, LogLine
from engine.contract.job import Job
from engine.data.datasets.images import DatasetError, UnreadableImage
from engine.data.datasets.samples import Sample, SampleSet
from engine.data.randomness import RandomStreams
from engine.system import paths
from engine.tasks.custom.task import load_task
from engine.training import sample_processes
from engine.training.sample_processes import SampleProcesses, should_use_processes
from tests.engine.training.task_jobs import task_job
from tests.support.consent import permit_model_file
from tests.support.same_states import find_differences
from tests.support.waiting import wait_until
from tests.support.worker_group import Forker, WorkerGroup

Start = Callable[..., WorkerGroup]
PREPARE = "tests.support.impatience:load_samples_in_processes"
BLOCK = bytes(1 << 22)
EXTRA = '["broken", "wrong", "deadly", "unseeded"]'
TASK = """
import os, random, signal, sys, threading, time
from pathlib import Path
import torch
from torch import nn
from engine.data.randomness import Purpose
from engine.tasks.custom.interface import CustomTask, SampleSet, UnreadableImage

class Sums(SampleSet):
    def __init__(self, folder, names):
        self.folder, self.names = folder, names

    def __len__(self):
        return len(self.names)

    def path(self, index):
        return self.names[index]

    def load(self, index, epoch):
        name = self.names[index]
        if name == "broken":
            raise UnreadableImage(name, "it is damaged")
        if name == "wrong":
            raise ValueError("wrong sample")
        if name == "deadly" and Path(self.folder, "deadly").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        draw = self.streams.generator(Purpose.TRANSFORM, epoch=epoch, batch=index)
        if name == "unseeded":
            draw = random
        values = torch.tensor([sum(draw.random() for _ in range(50)) for _ in range(36)])
        return values.view(4, 3, 3).permute(2, 0, 1).bfloat16().float(), torch.tensor(index % 3)

class SumTask(CustomTask):
    classes = "a", "b", "c"

    def datasets(self):
        names = [f"n{index}" for index in range(24)] + {extra}
        {before}
        return Sums(self.job.data.dataset, names), Sums(self.job.data.dataset, names[:7])

    def build_model(self, classes, channels):
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Dropout(0.2), nn.Flatten(), nn.Linear(96, classes))

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets, reduction="none")
"""


def job(folder: Path, *, extra: str = "[]", before: str = "pass", cpus: int = 1, **fields: Any) -> Job:
    """Write a custom task that computes its samples in Python, and return a job that trains it with `cpus` CPU workers.

    `extra` is the code of a list with the names of additional samples. `before` is code that runs before the datasets
    are opened. `fields` override fields of the job.
    """
    file = folder.parent / "sums.py"
    folder.mkdir(exist_ok=True)
    file.write_text(TASK.replace("{extra}", extra).replace("{before}", before))
    sha256 = permit_model_file(file)
    return task_job(folder, cpus, task="custom", model=str(file), model_file_sha256=sha256, loader_workers=3, **fields)


@pytest.fixture
def logged() -> list[str]:
    return []


@contextmanager
def started_server(custom_job: Job, logged: list[str]) -> Iterator[SampleProcesses]:
    with closing(SampleProcesses(custom_job, load_task(custom_job).open_splits(), logged.append)) as processes:
        assert processes.wait(60)
        yield processes


def find_loading_processes(rank: int) -> list[psutil.Process]:
    """Return the server that forks sample-loading processes for a rank, and these processes.

    `rank` is the process id of the rank's worker.
    """
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            command = process.cmdline()
            if sample_processes.__name__ in command and command[-2] == str(rank):
                found.append(process)
    return found


def wait_until_gone(rank: int) -> None:
    wait_until(lambda: not find_loading_processes(rank), "the end of loading processes", 30)


class ForkedServer:
    """Replacement for `Popen` that forks the server, since starting a new interpreter takes seconds."""

    def __init__(self, command: list[str], **_: Any) -> None:
        self.pid = os.fork()
        if not self.pid:
            sys.argv = command[-3:]
            os._exit(sample_processes.main())

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    @cached_property
    def code(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def wait(self) -> int:
        return self.code


def check_samples_and_errors(folder: str) -> int:
    """Load samples in processes, and check the samples, the raised errors, and the end of the processes.

    Returns the number of samples that were loaded and compared.
    """
    sample_processes.subprocess.Popen = ForkedServer  # type: ignore[misc, assignment]
    os.chdir(Path(folder).parent)
    custom_job = job(Path(folder), extra=EXTRA, before="os.listdir(self.job.data.dataset)")
    custom_job, this_process = custom_job.with_fields(dataset=Path(folder).name), psutil.Process()
    logged: list[str] = []
    with started_server(custom_job, logged) as processes:
        samples = load_task(custom_job).open_splits().train
        assert isinstance(samples, SampleSet)
        with ThreadPoolExecutor(3) as pool:
            found = list(pool.map(lambda index: processes.load("train", index, 2), range(24)))
        samples.streams = RandomStreams(0)
        for index, sample in enumerate(found):
            for tensor, expected in zip(sample, samples.load(index, 2), strict=True):
                assert tensor.dtype == expected.dtype
                assert torch.equal(tensor, expected)
        first, repeated, of_next_epoch = (processes.load("train", 27, epoch)[0] for epoch in (1, 1, 2))
        assert torch.equal(first, repeated)
        assert not torch.equal(first, of_next_epoch)
        assert logged == ["Processes load samples"]
        started = this_process.children(recursive=True)
        assert 2 <= len(started) <= 4  # with the server
        for process, ignored in product(started, (signal.SIGINT, signal.SIGUSR1)):
            process.send_signal(ignored)
        for _ in range(3):
            with pytest.raises(UnreadableImage, match="damaged"):
                processes.load("train", 24, 1)
            with pytest.raises(ValueError, match="wrong sample"):
                processes.load("train", 25, 1)
        assert set(this_process.children(recursive=True)) == set(started), (
            "a process loads further samples after an error"
        )
        Path(folder, "deadly").touch()
        with pytest.raises(DatasetError, match="deadly was killed by SIGKILL"):
            processes.load("train", 26, 1)
        assert len(processes.load("val", 0, 1)) == 2
        descendants = this_process.children(recursive=True)
        os.kill(this_process.children()[0].pid, signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, descendants)), "the end of the descendants", 30)
        with pytest.raises(DatasetError, match="n0 was killed by SIGKILL"):
            processes.load("train", 0, 1)
    return len(found)


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def test_processes_load_same_samples_and_errors(forker: Forker, tmp_path: Path) -> None:
    home = {"FOOTPLATE_HOME": str(paths.home())}
    assert forker.call(check_samples_and_errors, [str(tmp_path / "data")], home) == 24


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "problem"),
    [
        ("if 'pytest' not in sys.modules: raise RuntimeError", "exited with code 1"),
        ("if 'pytest' not in sys.modules: names = names[::-1]", "other samples"),
        ("if 'pytest' not in sys.modules: threading.Thread(target=time.sleep, args=(9,)).start()", "threads"),
    ],
)
def test_threads_load_samples_if_server_is_unusable(
    tmp_path: Path, logged: list[str], before: str, problem: str
) -> None:
    custom_job = job(tmp_path / "data", before=before)
    with started_server(custom_job, logged) as processes:
        inputs, _ = processes.load("train", 3, 1)
        processes.load("train", 4, 1)
    assert inputs.shape == (3, 4, 3)
    (line,) = logged
    assert line.startswith("Threads load samples")
    assert problem in line


@pytest.mark.long
def test_processes_exit_with_killed_rank(tmp_path: Path) -> None:
    script = f"""
import time
from tests.engine.training.test_sample_processes import Path, job, started_server
with started_server(job(Path({str(tmp_path / "data")!r})), []) as processes:
    processes.load("train", 0, 1)
    print("loaded", flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=paths.PACKAGES) as rank:
        assert rank.stdout is not None
        try:
            assert rank.stdout.readline() == b"loaded\n"
            assert len(find_loading_processes(rank.pid)) == 2
        finally:
            rank.kill()
        wait_until_gone(rank.pid)


def compute(_: int) -> None:
    sum(number * number % 7 for number in range(30_000))


def hash_block(_: int) -> None:
    hashlib.sha256(BLOCK).digest()  # lets other threads run


@pytest.mark.parametrize(
    ("work", "loads", "defined_by_user", "expected"),
    [
        (compute, 10**6, True, True),
        (compute, 10**6, False, False),
        (compute, 100, True, False),
        (hash_block, 10**6, True, False),
        (str, 10**6, True, False),
    ],
)
def test_slow_python_of_user_defined_classes_needs_processes(
    monkeypatch: pytest.MonkeyPatch, work: Callable[[int], object], loads: int, defined_by_user: bool, expected: bool
) -> None:
    class Samples(SampleSet):
        def __len__(self) -> int:
            return 10

        def path(self, index: int) -> str:
            return str(index)

        def load(self, index: int, epoch: int) -> Sample:
            work(index)
            raise UnreadableImage(self.path(index), "it is damaged")

    Samples.__module__ = "footplate_model_file" if defined_by_user else SampleSet.__module__
    assert should_use_processes(Samples(), loads) == expected
    if expected:  # a copy of the dataset must fit into the memory
        monkeypatch.setattr(
            psutil, "virtual_memory", lambda: SimpleNamespace(available=psutil.Process().memory_info().rss)
        )
        assert not should_use_processes(Samples(), loads)


@pytest.mark.long
def test_run_with_processes_has_losses_of_threads(start: Start, tmp_path: Path) -> None:
    custom_job = job(tmp_path / "data", extra='["broken"]', cpus=2, strategy="ddp", epochs=3)
    with_threads = start(custom_job, every_step=True).completed()
    with_processes = start(custom_job, every_step=True, prepare=PREPARE).completed()
    assert "Processes load samples" in [line.text for line in with_processes.of(LogLine)]
    assert len(with_threads.losses) == 9
    assert with_processes.losses == with_threads.losses
    states = [group.checkpoint()["model"] for group in (with_threads, with_processes)]
    assert find_differences(*states) == []
    longer = custom_job.with_fields(epochs=4, resume_from=str(with_processes.folder / "checkpoints/last.pt"))
    resumed = [start(longer, every_step=True, prepare=prepare).completed() for prepare in ("", PREPARE)]
    assert resumed[0].losses == resumed[1].losses


@pytest.mark.long
def test_killed_process_ends_run_with_cause(start: Start, tmp_path: Path) -> None:
    custom_job = job(tmp_path / "data", extra='["deadly"]')
    (tmp_path / "data/deadly").touch()
    group = start(custom_job, prepare=PREPARE)
    group.finish()
    (failed,) = group.of(Failed)
    assert "deadly was killed by SIGKILL" in failed.cause
