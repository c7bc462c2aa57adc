"""Every strategy on GPUs of the CUDA stand-in: which process is on which GPU, in what precision, and what it waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from engine.contract.events import Chosen
from engine.contract.job import Job

from .conftest import Machine, Start

Make = Callable[..., Job]


@pytest.mark.parametrize(("strategy", "gpus"), [("single", 1), ("dp", 2), ("ddp", 2), ("fsdp", 2)])
def test_that_a_process_has_a_context_on_its_own_gpus_alone(
    machine: Machine, job: Make, start: Start, strategy: str, gpus: int
) -> None:
    """In exclusive mode a second process that wakes a GPU would fail."""
    host = machine(gpus, exclusive=True)
    start(host, job(host, strategy=strategy, epochs=2)).completed()
    contexts = Counter((note.pid, note.gpu) for note in host.notes("context"))
    assert len(contexts) == gpus
    assert set(contexts.values()) == {1}
    assert Counter(gpu for _, gpu in contexts) == dict.fromkeys(range(gpus), 1)
    assert {note.gpu for note in host.notes() if note.pid == contexts_of(contexts, 0)} <= own_gpus(strategy, 0, gpus)


def contexts_of(contexts: Counter[tuple[int, int]], gpu: int) -> int:
    return next(pid for pid, on in contexts if on == gpu)


def own_gpus(strategy: str, rank: int, gpus: int) -> set[int]:
    return set(range(gpus)) if strategy == "dp" else {rank}


@pytest.mark.parametrize(
    ("precision", "dtype"), [("bf16", "torch.bfloat16"), ("fp16", "torch.float16"), ("fp32", "torch.float32")]
)
def test_that_replicas_of_dataparallel_compute_in_the_jobs_precision(
    machine: Machine, job: Make, start: Start, precision: str, dtype: str
) -> None:
    host = machine(2)
    group = start(host, job(host, strategy="dp", precision=precision), prepare="tests.cuda.watching:note_dtypes")
    group.completed()
    seen = set((group.folder / "dtypes").read_text().splitlines())
    assert seen == {f"cuda:0 {dtype}", f"cuda:1 {dtype}"}


@pytest.mark.parametrize("strategy", ["single", "dp", "ddp", "fsdp"])
def test_that_no_step_waits_for_the_gpu(machine: Machine, job: Make, start: Start, strategy: str) -> None:
    host = machine(1 if strategy == "single" else 2)
    group = start(
        host,
        job(host, strategy=strategy, epochs=2, clip_norm=1.0, ema_decay=0.9),
        prepare="tests.cuda.watching:note_synchronisation",
    )
    group.completed()
    assert {path.name: path.read_text() for path in group.folder.glob("waits-*")} == {
        f"waits-{rank}": "" for rank in range(len(host.uuids) if strategy != "dp" else 1)
    }


def test_that_a_split_lies_on_the_gpu_from_the_second_epoch_on(machine: Machine, job: Make, start: Start) -> None:
    host = machine()
    group = start(host, job(host, epochs=3, picture_cache="memory")).completed()
    assert "device" in [event.choice for event in group.of(Chosen)]
