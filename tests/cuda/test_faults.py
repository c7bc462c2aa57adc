"""Failures of workers on simulated GPUs: insufficient memory, hanging and lost GPUs, termination."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.contract.events import Failed, Warned
from engine.contract.job import Job
from engine.contract.worker import Heartbeat
from tests.support.cuda_state import MIB

from .conftest import Machine, Start

Make = Callable[..., Job]
UNSPECIFIED_LAUNCH_FAILURE = 719


def test_single_gpu_splits_a_batch_without_memory(machine: Machine, job: Make, start: Start) -> None:
    """Train with a batch size for which the memory is only sufficient if batches are split."""
    fields = {"batch_size": 64, "image_size": 128, "model": "resnet18", "precision": "fp32"}
    roomy = machine(memory_mib=16384)
    start(roomy, job(roomy, **fields)).completed()
    given = [int(note.details.split()[1]) for note in roomy.read_events("memory") if note.details.startswith("given")]
    tight = machine(memory_mib=64 + sum(given) // MIB * 6 // 10)
    group = start(tight, job(tight, **fields)).completed()
    (warned,) = (event for event in group.of(Warned) if event.code == "out_of_memory")
    assert "each batch is now processed in 2 parts" in warned.message or "4 parts" in warned.message
    assert any(note.details.startswith("refused") for note in tight.read_events("memory"))


@pytest.mark.parametrize(("strategy", "gpus"), [("single", 1), pytest.param("ddp", 2, marks=pytest.mark.long)])
def test_rank_with_a_hung_gpu_is_reported(machine: Machine, job: Make, start: Start, strategy: str, gpus: int) -> None:
    """Check that a hung GPU ends the run after 30 s, although a step may normally take 5 min."""
    host = machine(gpus)
    group = start(host, job(host, strategy=strategy, epochs=1000))
    group.read_steps(3)
    host.state.set_fault(0, hangs=True)
    heartbeat = group.read(
        lambda rank, message: rank == 0 and isinstance(message, Heartbeat) and bool(message.thread_state)
    )
    assert heartbeat.thread_state == "waiting", heartbeat


def test_gpus_that_cannot_exchange_data_are_named(machine: Machine, job: Make, start: Start) -> None:
    host = machine(2)
    group = start(host, job(host, strategy="ddp"), variables={"FOOTPLATE_NCCL_BROKEN": "1"})
    assert group.finish() == [1, 1]
    failures = group.of(Failed)
    assert [failed.kind for failed in failures] == ["error", "error"]
    assert all(uuid in failed.cause for failed in failures for uuid in host.uuids)


def test_lost_gpu_is_named(machine: Machine, job: Make, start: Start) -> None:
    host = machine()
    group = start(host, job(host, epochs=1000))
    group.read_steps(3)
    host.state.set_fault(0, error=UNSPECIFIED_LAUNCH_FAILURE)
    codes = group.finish()
    assert codes in ([1], [None])
    if codes == [1]:
        (failed,) = group.of(Failed)
        assert host.uuids[0] in failed.cause
        assert failed.kind == "fault"
    else:  # the error occurred in one of torch's threads, where it ends the process
        assert "CUDA error" in group.logs()


@pytest.mark.parametrize(
    ("strategy", "gpus"),
    [("single", 1), *(pytest.param(name, 2, marks=pytest.mark.long) for name in ("dp", "ddp")), ("fsdp", 2)],
)
def test_exited_workers_free_memory_and_pinned_memory_is_bounded(
    machine: Machine, job: Make, start: Start, strategy: str, gpus: int
) -> None:
    host = machine(gpus)
    # The simulated GPUs write no results. In memory that torch reuses, a loss may then be the NaN of older data.
    variables = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    start(host, job(host, strategy=strategy, epochs=6, keep_checkpoints=2), variables).completed()
    assert [host.state.read_allocated_bytes(gpu) for gpu in range(gpus)] == [{}] * gpus
    for pid in {note.pid for note in host.read_events()}:
        pinned = [int(note.details.split()[1]) for note in host.read_events("pinned") if note.pid == pid]
        assert sum(pinned) < 64 * MIB
