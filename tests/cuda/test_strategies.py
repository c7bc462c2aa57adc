"""Strategies on simulated GPUs: placement, precision and synchronization."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.contract.events import Chosen
from engine.contract.job import Job
from tests.cuda import scenarios
from tests.gpu.hooks import read_record
from tests.support.cuda_stub import CudaStub

from .conftest import Call, Machine, Start

Make = Callable[..., Job]


@pytest.mark.parametrize("binds", [True, False])
def test_rank_is_bound_to_the_cpus_near_its_gpu(machine: Machine, call: Call, binds: bool) -> None:
    before, after, of_thread, rank, bus_ids = call(machine(2), scenarios.bind_cpus, binds)
    assert after == of_thread == (before[:1] if binds else before)
    assert (rank, len(bus_ids)) == ((1, 2) if binds else (None, 0))


@pytest.mark.parametrize(
    ("strategy", "gpus"),
    [("single", 1), *(pytest.param(name, 2, marks=pytest.mark.long) for name in ("dp", "ddp")), ("fsdp", 2)],
)
def test_process_has_contexts_on_its_gpus_only(
    machine: Machine, job: Make, start: Start, strategy: str, gpus: int
) -> None:
    """Use GPUs in exclusive mode, in which a CUDA context of a second process would be an error."""
    host = machine(gpus, exclusive=True)
    start(host, job(host, strategy=strategy, epochs=2)).completed()
    contexts = Counter((note.pid, note.gpu) for note in host.read_events("context"))
    assert len(contexts) == gpus
    assert set(contexts.values()) == {1}
    assert Counter(gpu for _, gpu in contexts) == dict.fromkeys(range(gpus), 1)
    first = next(pid for pid, gpu in contexts if gpu == 0)
    assert {note.gpu for note in host.read_events() if note.pid == first} <= {
        gpu for pid, gpu in contexts if pid == first
    }


@pytest.mark.parametrize(
    ("precision", "dtype"), [("bf16", "torch.bfloat16"), ("fp16", "torch.float16"), ("fp32", "torch.float32")]
)
def test_data_parallel_replicas_use_the_jobs_precision(
    machine: Machine, job: Make, start: Start, precision: str, dtype: str
) -> None:
    host = machine(2)
    group = start(host, job(host, strategy="dp", precision=precision), prepare="tests.gpu.hooks:record_dtypes")
    group.completed()
    assert set(read_record(group.folder)) == {f"cuda:0 {dtype}", f"cuda:1 {dtype}"}


@pytest.mark.parametrize("strategy", ["single", "dp", "ddp", "fsdp"])
def test_steps_do_not_wait_for_the_gpu(machine: Machine, job: Make, start: Start, strategy: str) -> None:
    host = machine(1 if strategy == "single" else 2)
    group = start(
        host,
        job(host, strategy=strategy, epochs=2, clip_norm=1.0, ema_decay=0.9),
        prepare="tests.gpu.hooks:record_waits",
    )
    group.completed()
    ranks = 1 if strategy == "dp" else len(host.uuids)
    assert [read_record(group.folder, rank) for rank in range(ranks)] == [{}] * ranks


def test_split_is_resident_from_the_second_epoch(machine: Machine, job: Make, start: Start) -> None:
    host = machine()
    group = start(host, job(host, epochs=3, picture_cache="memory")).completed()
    assert "device" in [event.choice for event in group.of(Chosen)]


def test_random_state_moves_to_a_machine_with_fewer_gpus(cuda_stub: CudaStub, call: Call, tmp_path: Path) -> None:
    two, one = (cuda_stub.create_machine(tmp_path / str(gpus), gpus) for gpus in (2, 1))
    file = str(tmp_path / "random.pt")
    assert call(two, scenarios.save_random_state, list(two.uuids), file) == 1
    assert call(one, scenarios.restore_random_state, [f"first:{two.uuids[1]}", f"second:{one.uuids[0]}"], file)


def test_straggler_of_another_machine_is_named(machine: Machine, call: Call) -> None:
    host = machine()
    (message,) = call(host, scenarios.measure_straggler, [*host.uuids, f"elsewhere:{host.uuids[0]}"])
    assert "Tesla T4" in message
