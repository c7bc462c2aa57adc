"""Positions, settings and best states that a job takes over from the checkpoint of another run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from engine.contract.job import Job
from engine.models.base import TaskError
from engine.strategies.collectives import Collectives
from engine.training.checkpointing.checkpoint_files import write_checkpoint
from engine.training.checkpointing.resume import Checkpoint
from tests.engine.parallel.test_split_points import split_of

FIELDS: dict[str, Any] = {"devices": ("cpu", "cpu"), "strategy": "ddp", "epochs": 9, "precision": "fp32"}
CONTENT: dict[str, Any] = {
    "model": {"weight": torch.ones(2, 3)}, "optimizer": {}, "random": [], "classes": ("a", "b"), "stopping": {},
    "epoch": 2, "done": 3, "steps": 6, "step": 9, "validated": False, "shares": (0.75, 0.25), "model_split": None,
    "best": {"top1": 0.5}, "best_epoch": 1, "best_sha256": "", "parts": {"asked": 2, "evaluation": 8},
}  # fmt: skip


@pytest.fixture
def resume(tmp_path: Path) -> Callable[..., Checkpoint]:
    """Return a function that writes a checkpoint and resumes it.

    Its arguments are the changes to `CONTENT`, the fields of the written job, and the fields of the resuming job.
    """

    def write_and_read(
        changes: dict[str, Any], before: dict[str, Any], collectives: Collectives | None = None, **job: Any
    ) -> Checkpoint:
        fields = msgspec.to_builtins(Job.from_fields(**FIELDS | before).values())
        write_checkpoint(CONTENT | {"job": fields} | changes, tmp_path / "last.pt")
        resuming = Job.from_fields(**FIELDS | job, resume_from=str(tmp_path / "last.pt"))
        return Checkpoint(resuming, ("a", "b"), {"weight": torch.zeros(2, 3)}, collectives or Collectives())

    return write_and_read


@pytest.mark.parametrize(
    ("changes", "steps", "job", "expected"),
    [
        ({}, 6, {}, (2, 3, 9)),
        ({}, 5, {}, (2, 0, 5, "epoch_anew")),
        ({}, 6, {"seed": 1}, (2, 0, 6, "epoch_anew")),
        ({"done": 6}, 5, {}, (2, 5, 10)),
        ({"done": 6, "validated": True}, 5, {"epochs": 3}, (3, 0, 10)),
        ({"done": 6, "validated": True}, 6, {"epochs": 2}, (3, 0, 12, "nothing_left")),
    ],
)
def test_position_depends_on_order_and_validation(
    resume: Callable[..., Checkpoint],
    changes: dict[str, Any],
    steps: int,
    job: dict[str, Any],
    expected: tuple[Any, ...],
) -> None:
    checkpoint = resume(changes, {}, **job)
    progress, codes = checkpoint.progress(steps), [remark.code for remark in checkpoint.remarks(steps)]
    assert progress.steps == steps
    assert (progress.epoch, progress.done, progress.step, *codes) == expected


@pytest.mark.parametrize(
    ("job", "is_alone", "parts", "codes"),
    [
        ({"accumulation": 2}, True, (4, 8), ["out_of_memory"]),
        ({"accumulation": 3}, True, (3, 8), []),
        ({"accumulation": 2}, False, (2, 1), []),
        ({"accumulation": 2, "precision": "bf16"}, True, (2, 1), []),
        ({"accumulation": 2, "devices": ("cpu",) * 3}, True, (2, 1), []),
    ],
)
def test_parts_are_restored_for_equal_memory(
    resume: Callable[..., Checkpoint], job: dict[str, Any], is_alone: bool, parts: tuple[int, int], codes: list[str]
) -> None:
    checkpoint = resume({}, {"accumulation": 4}, **job)
    restored, evaluation_parts = checkpoint.restore_accumulation(is_alone=is_alone)
    assert (restored.training.accumulation, evaluation_parts) == parts
    assert [remark.code for remark in checkpoint.remarks(6)] == codes


def test_shares_are_restored_only_if_both_runs_balance(resume: Callable[..., Checkpoint]) -> None:
    speed = {"balance": "speed"}
    assert resume({}, speed, **speed).shares == (0.75, 0.25)
    others: tuple[dict[str, Any], ...] = ({}, speed | {"strategy": "fsdp"}, speed | {"devices": ("cpu",) * 3})
    assert [resume({}, speed, **job).shares for job in others] == [None] * 3
    without = resume({}, {}), resume({}, {}, **speed), resume({"shares": None}, speed, **speed)
    assert [checkpoint.shares for checkpoint in without] == [None] * 3


def test_split_is_restored_for_equal_pipelines(resume: Callable[..., Checkpoint]) -> None:
    split = split_of([1.0, 2.0, 3.0], split_points=("p1",), seconds_per_byte=0.5)
    pipeline = {"strategy": "pipeline", "split_points": ("p1",)}
    others: tuple[dict[str, Any], ...] = (
        {}, {"split_points": ("p0",)}, {"activation_checkpointing": True}, {"devices": ("cpu",) * 3}, {"batch_size": 48},
    )  # fmt: skip
    checkpoint = resume({"model_split": msgspec.to_builtins(split)}, pipeline, **pipeline)
    restored = [checkpoint.model_split(Job.from_fields(**FIELDS | pipeline | other)) for other in others]
    assert restored == [split] + [None] * 4


def test_newest_intact_checkpoint_replaces_a_damaged_one(resume: Callable[..., Checkpoint], tmp_path: Path) -> None:
    for epoch in (1, 2, 3):
        resume({"epoch": epoch}, {})
        (tmp_path / "last.pt").rename(tmp_path / f"epoch-{epoch}-step-{6 * epoch}.pt")
    (tmp_path / "epoch-3-step-18.pt").write_bytes(b"damaged")
    (tmp_path / "last.pt").write_bytes(b"damaged")
    job = Job.from_fields(**FIELDS, resume_from=str(tmp_path / "last.pt"))
    checkpoint = Checkpoint(job, ("a", "b"), {"weight": torch.zeros(2, 3)}, Collectives())
    assert (checkpoint.path.name, checkpoint.progress(6).epoch) == ("epoch-2-step-12.pt", 2)
    (remark,) = checkpoint.remarks(6)
    assert remark.code == "checkpoint_damaged"
    assert "epoch-2-step-12.pt, after step 9." in remark.message

    def refuse(name: str) -> str:
        with pytest.raises(TaskError) as refused:
            Checkpoint(
                job.with_fields(resume_from=str(tmp_path / name)),
                ("a", "b"),
                {"weight": torch.zeros(2, 3)},
                Collectives(),
            )
        return str(refused.value)

    assert "epoch-3-step-18.pt is not a checkpoint, or is damaged" in refuse("epoch-3-step-18.pt")
    write_checkpoint({"weight": torch.ones(1)}, tmp_path / "plain.pt")
    assert "plain.pt contains only weights" in refuse("plain.pt")
    write_checkpoint({"weight": torch.ones(1), "epoch": 3}, tmp_path / "other.pt")
    assert "other.pt is not a Footplate checkpoint" in refuse("other.pt")
    (tmp_path / "folder").mkdir()
    assert "folder can't be read: Is a directory." in refuse("folder")
    for epoch in (1, 2):
        (tmp_path / f"epoch-{epoch}-step-{6 * epoch}.pt").write_bytes(b"damaged")
    others = "(epoch-3-step-18.pt, epoch-2-step-12.pt, epoch-1-step-6.pt)"
    assert f"last.pt is damaged, and so are the checkpoints before it {others}." in refuse("last.pt")


class _CollectivesWithOtherFile(Collectives):
    """Collectives with another rank, which has read a file with a larger checksum."""

    def all_reduce_max(self, flags: Sequence[int]) -> list[int]:
        return [flags[0] + 1, flags[1]]


@pytest.mark.parametrize(
    ("changes", "collectives"),
    [
        ({}, _CollectivesWithOtherFile()),
        ({"model": {"weight": torch.ones(3, 2)}}, None),
        ({"classes": ("b", "a")}, None),
        ({"job": {"optimizer": "other"}}, None),
    ],
)
def test_unsuitable_checkpoint_is_refused(
    resume: Callable[..., Checkpoint], changes: dict[str, Any], collectives: Collectives | None
) -> None:
    with pytest.raises(TaskError) as refused:
        resume(changes, {}, collectives)
    assert refused.value.field == "resume_from"
