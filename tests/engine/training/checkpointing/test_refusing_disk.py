"""Checkpointer of a single worker in this process, on a disk that may refuse its files."""

from __future__ import annotations

import errno
import math
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from engine.contract.events import CheckpointSaved, Event, Warned
from engine.contract.job import Job, save_job
from engine.contract.worker import WorkerDone
from engine.optim.optimizer_step import OptimizerStep
from engine.runs.folder import RunFolder
from engine.strategies import STRATEGIES
from engine.strategies.base import ResolvedJob
from engine.training.checkpointing import checkpoint_writer
from engine.training.checkpointing import checkpointer as module
from engine.training.checkpointing.checkpoint_files import verify_checkpoint, write_checkpoint
from engine.training.checkpointing.checkpoint_writer import TrainProgress
from engine.training.checkpointing.checkpointer import Checkpointer
from engine.training.checkpointing.elsewhere import NotSavedElsewhere, save_elsewhere
from engine.training.checkpointing.resume import Checkpoint
from engine.training.report import Reporter
from tests.engine.training.checkpointing.test_checkpoint_files import FailsWithSystemError
from tests.support.clock import Clock
from tests.support.dataset_infos import make_classification_objective
from tests.support.specs import make_worker_spec

STEPS = 6
"""Number of steps per epoch."""


class RecordingReporter(Reporter):
    """Reporter that collects its messages in `sent`."""

    def __init__(self, channel: socket.socket) -> None:
        self.sent: list[Event | WorkerDone] = []
        super().__init__(channel, 0, lambda: None)

    def send(self, message: Event | WorkerDone) -> None:
        self.sent.append(message)
        super().send(message)


class Worker:
    """Worker that does not train, but saves checkpoints of a small model in `folder`."""

    def __init__(self, folder: Path, reporter: RecordingReporter, **fields: Any) -> None:
        self.folder, self.reporter, self.is_closed = folder, reporter, False
        job = Job.from_fields(**{"devices": ("cpu",), "batch_size": 8, "strategy": "single"} | fields)
        folder.mkdir()
        save_job(job, folder / "job.toml")
        self.strategy = STRATEGIES["single"](make_worker_spec(job, run_folder=str(folder)))
        self.strategy.setup()
        resolved = job.with_fields(precision="fp32", memory_format="contiguous")
        self.strategy.wrap(
            nn.Sequential(nn.Flatten(), nn.Linear(12, 2)),
            make_classification_objective(),
            (3, 2, 2),
            ResolvedJob(resolved),
        )
        self.step = OptimizerStep(self.strategy.parameters(), resolved, STEPS, self.strategy.device)
        self.checkpointer = Checkpointer(self.strategy.spec, self.strategy, self.step, reporter, ("a", "b"))

    def save(self, epoch: int, **measures: float) -> None:
        """Save a checkpoint at the end of an epoch with the metrics of its validation, and wait for the disk."""
        progress = TrainProgress(epoch, STEPS, STEPS, epoch * STEPS, validated=True)
        self.checkpointer.save(progress, measures)
        self.checkpointer.wait()

    def last(self) -> dict[str, Any]:
        content: dict[str, Any] = torch.load(self.folder / "checkpoints/last.pt", weights_only=True)
        return content

    def make_disk_refuse(self) -> None:
        """Make all further checkpoints fail, by replacing their folder with a file."""
        if (self.folder / "checkpoints").exists():
            (self.folder / "checkpoints").rename(self.folder / f"before-{len(list(self.folder.iterdir()))}")
        (self.folder / "checkpoints").touch()

    def make_disk_accept(self) -> None:
        (self.folder / "checkpoints").unlink()

    def close(self) -> None:
        """End the checkpointer as at the end of a run, unless it has ended."""
        if not self.is_closed:
            self.is_closed = True
            with self.checkpointer:
                pass

    def final_save(self, is_cancelled: Callable[[], bool], *, stopped: bool = False) -> str:
        return self.checkpointer.retry_final_save(stopped=stopped, is_cancelled=is_cancelled)


class CancelledAtThird:
    """Function that returns True from its third call on, and counts its `calls`."""

    calls = 0

    def __call__(self) -> bool:
        self.calls += 1
        return self.calls > 2


@pytest.fixture
def make_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Worker]]:
    """Return a function that creates workers from job fields. Failed writes are retried without a pause."""
    monkeypatch.setattr(module, "RETRY_INTERVAL_S", 0.0)
    local, remote = socket.socketpair()
    reporter = RecordingReporter(remote)
    workers: list[Worker] = []

    def create(**fields: Any) -> Worker:
        workers.append(Worker(tmp_path / f"run-{len(workers)}", reporter, **fields))
        return workers[-1]

    yield create
    for worker in workers:
        worker.close()
    reporter.close()
    local.close()


@pytest.mark.parametrize(
    ("best_by", "losses"), [("", (0.4, 0.4, 0.1, 0.3, 0.3)), ("top1", (4, 5, 1, 3, 3.5)), ("loss", (3, 3, 4, 1, 2))]
)
def test_best_is_the_first_with_the_lowest_loss_of_equal_metrics(
    make_worker: Callable[..., Worker], best_by: str, losses: list[float]
) -> None:
    worker, better, best = make_worker(best_by=best_by), [], {}
    for epoch, (top1, loss) in enumerate(zip((0.7, 0.7, 0.6, 0.7, 0.7), losses, strict=True), 1):
        measures = {"top1": top1, "loss": loss}
        better.append(worker.checkpointer.is_better(measures))
        worker.save(epoch, **measures)
        best = measures if epoch == 4 else best
    assert better == [True, False, False, True, False]
    assert not worker.checkpointer.is_better({})
    saved = [event for event in worker.reporter.sent if isinstance(event, CheckpointSaved)]
    expected = losses if best_by == "loss" else (0.7, 0.7, 0.6, 0.7, 0.7)
    assert tuple(event.measure for event in saved if event.kind == "last") == expected
    assert (worker.checkpointer.best, worker.checkpointer.best_epoch) == (best, 4)
    content = worker.last()
    assert (content["best"], content["best_epoch"], content["epoch"], content["step"]) == (best, 4, 5, 5 * STEPS)
    assert content["best_sha256"] == verify_checkpoint(worker.folder / "checkpoints/best.pt")


def test_refused_best_is_saved_with_the_next_checkpoint(make_worker: Callable[..., Worker]) -> None:
    worker = make_worker()
    worker.save(1, top1=0.3)
    worker.make_disk_refuse()
    worker.save(2, top1=0.9)
    assert worker.checkpointer.best_epoch == 1
    assert [worker.checkpointer.is_better({"top1": value}) for value in (0.8, 0.95)] == [False, True]
    worker.make_disk_accept()
    worker.save(3, top1=0.8)
    assert (worker.checkpointer.best, worker.checkpointer.best_epoch) == ({"top1": 0.9}, 2)
    assert (worker.last()["best_epoch"], worker.last()["epoch"]) == (2, 3)
    worker.make_disk_refuse()
    worker.save(4, top1=0.99)
    worker.make_disk_accept()
    worker.close()
    assert not (worker.folder / "checkpoints").exists(), "the disk has refused it before"


def test_better_state_after_a_refused_one_is_saved_at_the_end(make_worker: Callable[..., Worker]) -> None:
    worker = make_worker()
    worker.make_disk_refuse()
    worker.save(1, top1=0.3)
    worker.make_disk_accept()
    worker.checkpointer.writer.next_epoch_end = math.inf
    progress = TrainProgress(2, STEPS, STEPS, 2 * STEPS, validated=True)
    worker.checkpointer.save(progress, {"top1": 0.9}, may_skip=True)
    worker.close()
    assert [path.name for path in (worker.folder / "checkpoints").iterdir()] == ["best.pt"]


def test_older_checkpoint_of_the_same_step_is_not_kept(make_worker: Callable[..., Worker]) -> None:
    worker = make_worker(keep_checkpoints=2)
    worker.checkpointer.save(TrainProgress(1, STEPS, STEPS, STEPS))
    worker.save(1, top1=0.5)
    worker.save(2, top1=0.4)
    names = {path.name for path in (worker.folder / "checkpoints").iterdir()}
    assert names == {"last.pt", "best.pt", f"epoch-1-step-{STEPS}.pt"}
    worker.checkpointer.save(TrainProgress(2, STEPS, STEPS, 2 * STEPS))
    worker.checkpointer.wait()
    assert names == {path.name for path in (worker.folder / "checkpoints").iterdir()}


def test_checkpoint_is_due_after_minutes(make_worker: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(1000.0)
    for each in (module, checkpoint_writer):
        monkeypatch.setattr(each, "time", clock)
    worker, never = make_worker(checkpoint_minutes=5), make_worker(checkpoint_minutes=0)

    def due(*times: float) -> list[bool]:
        found = []
        for clock.now in times:
            assert not never.checkpointer.is_overdue()
            found.append(worker.checkpointer.is_overdue())
        return found

    assert due(1000.0, 1299.0, 1300.0) == [False, False, True]
    worker.save(1, top1=0.5)
    assert worker.checkpointer.writer.next_epoch_end == 1300.0, "writing took no time"
    assert due(1300.0, 1599.0, 1601.0) == [False, False, True]


def test_checkpoint_has_the_parts_of_a_batch(make_worker: Callable[..., Worker]) -> None:
    worker = make_worker(accumulation=2, compile="auto")
    worker.strategy.accumulation, worker.strategy.evaluation_parts = 4, 8  # after memory ran out
    worker.save(1, top1=0.5)
    content = worker.last()
    assert content["parts"] == {"asked": 2, "evaluation": 8}
    assert (content["job"]["accumulation"], content["job"]["compile"], content["classes"]) == (4, "auto", ("a", "b"))
    model = worker.strategy.model
    model._compiled_call_impl = model._call_impl  # as if it were compiled
    worker.save(2, top1=0.6)
    never = make_worker(compile="on")  # which was given up
    never.save(1, top1=0.5)
    assert [each.last()["job"]["compile"] for each in (worker, never)] == ["on", "off"]


@pytest.mark.parametrize("stopped", [False, True])
def test_final_save_ends_after_its_time(
    make_worker: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    monkeypatch.setattr(module, "RETRY_STOPPED_S" if stopped else "RETRY_COMPLETED_S", 0.0)
    worker, is_cancelled = make_worker(), CancelledAtThird()
    worker.save(1, top1=0.5)
    worker.make_disk_refuse()
    worker.save(2, top1=0.9)
    assert worker.final_save(is_cancelled, stopped=stopped)
    assert is_cancelled.calls == 0, "the other limit does not count"
    assert [message.code for message in worker.reporter.sent if isinstance(message, Warned)] == [
        "checkpoint_failed", "checkpoint_failed", "unsaved",
    ]  # fmt: skip


def test_cancelled_final_save_names_the_step_on_the_disk(make_worker: Callable[..., Worker]) -> None:
    worker, is_cancelled = make_worker(), CancelledAtThird()
    worker.save(1, top1=0.5)
    worker.make_disk_refuse()
    worker.save(2, top1=0.4)
    unsaved = worker.final_save(is_cancelled)
    assert is_cancelled.calls == 3
    assert re.findall(r"step (\d+)", unsaved) == ["12", "6"]
    without = make_worker()
    without.make_disk_refuse()
    without.save(1, top1=0.5)
    assert "The state after step 6 wasn't saved; last.pt wasn't saved either." in without.final_save(lambda: True)


def test_final_save_continues_until_the_disk_accepts(make_worker: Callable[..., Worker]) -> None:
    worker, asked = make_worker(), []
    worker.make_disk_refuse()
    worker.save(1, top1=0.5)

    def is_cancelled() -> bool:
        asked.append(1)
        if len(asked) == 3:
            worker.make_disk_accept()
        return False

    assert worker.final_save(is_cancelled) == ""
    assert len(asked) == 3
    assert (worker.last()["step"], worker.last()["best_epoch"], worker.checkpointer.best_epoch) == (6, 1, 1)


@pytest.mark.parametrize(("stopped", "accepts_best"), [(False, False), (True, True)])
def test_final_save_uses_the_first_folder_that_accepts(
    make_worker: Callable[..., Worker], tmp_path: Path, stopped: bool, accepts_best: bool
) -> None:
    worker, other = make_worker(), tmp_path / "other"
    other.mkdir()
    if accepts_best:
        (worker.folder / "checkpoints/.last.pt.part").mkdir(parents=True)
    else:
        worker.make_disk_refuse()
    worker.save(2, top1=0.5)
    save_job(worker.strategy.job.with_fields(name="renamed"), worker.folder / "job.toml")
    worker.reporter.folders_requested.extend([str(tmp_path / "missing"), str(other), str(tmp_path)])
    unsaved = worker.final_save(lambda: False, stopped=stopped)
    copy = other / worker.folder.name
    assert str(copy) in unsaved
    assert ("--resume-from" in unsaved) == stopped
    assert list(worker.reporter.folders_requested) == [str(tmp_path)]
    assert RunFolder(copy).job().name == "renamed"
    content = torch.load(copy / "checkpoints/last.pt", weights_only=True)
    assert (content["step"], content["best"], content["best_epoch"]) == (12, {"top1": 0.5}, 2)
    assert content["best_sha256"] == verify_checkpoint(copy / "checkpoints/best.pt")
    assert worker.checkpointer.best_epoch == 2
    codes = [message.code for message in worker.reporter.sent if isinstance(message, Warned)]
    assert codes[-3:] == ["unsaved", "not_saved_elsewhere", "saved_elsewhere"]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_resume_copies_the_best_of_its_checkpoint(make_worker: Callable[..., Worker], is_replaced: bool) -> None:
    first = make_worker()
    for epoch, value in ((1, 0.7), (2, 0.5)):
        first.checkpointer.stopping.add({"top1": value})
        first.save(epoch, top1=value)
    best = first.folder / "checkpoints/best.pt"
    if is_replaced:
        write_checkpoint({"other": torch.ones(1)}, best)
    job = first.strategy.job.with_fields(resume_from=str(first.folder / "checkpoints/last.pt"), epochs=5)
    checkpoint = Checkpoint(job, ("a", "b"), first.strategy.model.state_dict(), first.strategy.collectives)
    second = make_worker()
    initial_rate = second.step.learning_rate
    checkpoint.restore(second.strategy, second.step, second.checkpointer, checkpoint.progress(STEPS))
    assert second.step.learning_rate < initial_rate, "the schedule continues at its position"
    known = second.checkpointer.best, second.checkpointer.best_epoch, second.checkpointer.writer.best_sha256
    stopping = [worker.checkpointer.stopping.state_dict() for worker in (first, second, make_worker())]
    assert stopping[0] == stopping[1] != stopping[2]
    assert known == (({}, None, "") if is_replaced else ({"top1": 0.7}, 1, verify_checkpoint(best)))
    assert (second.folder / "checkpoints/best.pt").exists() is not is_replaced


def test_save_elsewhere_reports_that_only_the_best_is_saved(make_worker: Callable[..., Worker], tmp_path: Path) -> None:
    worker = make_worker()
    worker.make_disk_refuse()
    worker.save(1, top1=0.9)
    for parameter in worker.strategy.model.parameters():
        parameter.data.fill_(math.nan)
    worker.save(2, top1=0.1)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    copy = worker.checkpointer.writer.save_elsewhere(elsewhere)
    assert copy is not None
    assert [path.name for path in copy.checkpoints.iterdir()] == ["best.pt"]
    warning = next(each for each in worker.reporter.sent if isinstance(each, Warned) and each.code == "saved_elsewhere")
    assert f"best state, after step {STEPS}," in warning.message
    assert f"step {2 * STEPS}" not in warning.message


def test_save_elsewhere_removes_what_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last, best = {"model": torch.ones(200), "random": [(torch.ones(50),), torch.ones(50)]}, {"weight": torch.ones(500)}
    for free, content in ((3199, last), (3200, last | {"job": FailsWithSystemError(errno.ENOSPC)})):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        with pytest.raises(NotSavedElsewhere):
            save_elsewhere(tmp_path, RunFolder(tmp_path / "absent/run"), Job(), content, best)
        assert not list(tmp_path.iterdir())
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    with pytest.raises(NotSavedElsewhere, match=r"1\.0 MiB free, and the state needs 4\.0 MiB"):
        save_elsewhere(tmp_path, RunFolder(tmp_path / "absent/run"), Job(), {"model": torch.ones(1 << 20)}, None)
    (tmp_path / "run").touch()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    for folder, reason in (
        (Path("here"), "does not exist"),
        (tmp_path / "absent", "does not exist"),
        (tmp_path / "run", "is not a folder"),
        (tmp_path, "already contains run, which"),
    ):
        with pytest.raises(NotSavedElsewhere, match=reason):
            save_elsewhere(folder, RunFolder(tmp_path / "absent/run"), Job(), last, best)
