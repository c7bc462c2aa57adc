"""Complete runs on simulated GPUs, observed from outside."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from engine.contract.events import Failed, LogLine, Restarting
from engine.contract.job import Job
from engine.contract.protocol import Pause, Stop
from engine.processes.group import PRIVATE_NETWORK
from engine.processes.watchdog import Limits
from engine.runs.folder import create_run
from tests.engine.cli import terminal
from tests.faults.real_runs import RealRun, Starter, kill
from tests.support.cases import mark_long_cases
from tests.support.cuda_stub import CudaMachine, CudaStub
from tests.support.nvml_stub import make_gpu_profile
from tests.support.waiting import wait_until

from .conftest import Machine

Make = Callable[..., Job]
Use = Callable[..., CudaMachine]
StartRun = Callable[..., RealRun]
FREE_S = 3.0
"""Maximum seconds from a stop until the GPUs are free."""


@pytest.fixture(scope="session")
def cuda_starter(cuda_stub: CudaStub) -> Iterator[Starter]:
    starter = Starter(cuda_stub.environment)
    yield starter
    starter.close()


@pytest.fixture
def use(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Use:
    """Return a function that creates a simulated machine, on which all later processes of the test run."""

    def make(gpus: int = 1, **values: object) -> CudaMachine:
        host = machine(gpus, **values)
        for name, value in host.environment.items():
            monkeypatch.setenv(name, value)
        return host

    return make


@pytest.fixture
def start_run(cuda_starter: Starter) -> Iterator[StartRun]:
    """Return a function that starts a run. Runs that are still active are terminated after the test."""
    runs: list[RealRun] = []

    def start(job: Job, **options: object) -> RealRun:
        runs.append(RealRun(cuda_starter, create_run(job), **options))
        return runs[-1].start()

    yield start
    for run in runs:
        run.kill_all()
        run.wait_for_processes_to_end()
        run.remove_socket()


def free(host: CudaMachine) -> bool:
    return not any(host.state.read_allocated_bytes(gpu) for gpu in range(len(host.uuids)))


DIVISIBLE = {"model": "mobilenet_v3_small", "image_size": 32, "batch_size": 36}
"""Job fields for a model whose head tensor parallelism can divide between GPUs."""
RUNS: dict[str, tuple[int, dict[str, object]]] = {
    "single": (1, {}),
    "dp": (2, {"strategy": "dp"}),
    "dp on four": (4, {"strategy": "dp"}),
    "ddp": (2, {"strategy": "ddp"}),
    "ddp on four": (4, {"strategy": "ddp"}),
    "fsdp": (2, {"strategy": "fsdp"}),
    "fsdp, offloaded": (2, {"strategy": "fsdp", "cpu_offload": True, "precision": "fp16", "optimizer": "adamw"}),
    "fsdp on four": (4, {"strategy": "fsdp"}),
    "model_parallel": (2, {"strategy": "model_parallel"}),
    "pipeline": (2, {"strategy": "pipeline"}),
    "pipeline on four": (4, {"strategy": "pipeline", "pipeline_schedule": "1f1b"}),
    "hybrid": (4, {"strategy": "ddp_pipeline"}),
    "hsdp": (4, {"strategy": "hsdp"}),
    "zero1": (2, {"strategy": "zero1", "precision": "fp16", "optimizer": "adamw", "ema_decay": 0.9}),
    "tp": (2, {"strategy": "tp", "clip_norm": 1.0, **DIVISIBLE}),
    "ddp_tp": (4, {"strategy": "ddp_tp", "precision": "fp16", **DIVISIBLE}),
    "fsdp_tp": (4, {"strategy": "fsdp_tp", "shard_precision": "bf16", **DIVISIBLE}),
}
PIPELINES = ("model_parallel", "pipeline", "ddp_pipeline")
EVERYDAY = ("single", "ddp", "pipeline")


@pytest.mark.parametrize("name", mark_long_cases(RUNS, EVERYDAY))
def test_run_frees_its_gpus_under_every_strategy(use: Use, job: Make, start_run: StartRun, name: str) -> None:
    gpus, fields = RUNS[name]
    if fields.get("strategy") in PIPELINES and version("torch").startswith("2.14."):
        pytest.skip("in torch 2.14 the stages agree on a product, which the GPUs of the stand-in do not compute")
    host = use(gpus, exclusive=True)
    run = start_run(job(host, epochs=2, **fields)).completed()
    assert not run.list_events(Failed)
    contexts = Counter(note.gpu for note in host.read_events("context"))
    assert contexts == dict.fromkeys(range(gpus), 1)
    assert free(host)


def test_job_uses_its_gpus_in_order_and_in_one_network(use: Use, job: Make, start_run: StartRun) -> None:
    host = use(4)
    run = start_run(job(host, strategy="ddp", devices=(host.uuids[3], host.uuids[1]), epochs=1000))
    run.wait_for_step(2)
    ranks = {process.pid: rank for rank, process in run.workers().items()}
    assert [[ranks[pid] for pid in host.state.read_allocated_bytes(gpu)] for gpu in range(4)] == [[], [1], [], [0]]
    networks = {os.readlink(f"/proc/{pid}/ns/net") for pid in ranks}
    is_private = any(line.text == PRIVATE_NETWORK for line in run.list_events(LogLine))
    assert len(networks) == 1
    assert networks.isdisjoint({os.readlink("/proc/self/ns/net")}) == is_private
    run.send(Stop())
    assert run.wait_for_end().outcome == "stopped"
    assert free(host)


@pytest.mark.parametrize("command", mark_long_cases((Stop, Pause), everyday=(Pause,)))
def test_gpus_are_free_soon_after_a_stop(use: Use, job: Make, start_run: StartRun, command: type[Stop | Pause]) -> None:
    host = use(2)
    run = start_run(job(host, strategy="ddp", epochs=1000))
    run.wait_for_step(3)
    asked = time.monotonic()
    run.send(command())
    wait_until(lambda: free(host), "free GPUs")
    assert time.monotonic() - asked < FREE_S
    finished = run.wait_for_end()
    assert finished.outcome == {"stop": "stopped", "pause": "paused"}[command.__struct_config__.tag]
    assert time.monotonic() - asked < 2 * FREE_S


def test_killed_rank_frees_memory_and_the_run_restarts(use: Use, job: Make, start_run: StartRun) -> None:
    """Kill a rank while the others wait in an NCCL collective, which can then never complete."""
    host = use(2)
    run = start_run(job(host, strategy="ddp", epochs=1000, checkpoint_steps=2))
    run.wait_for_checkpoint(2)
    killed = run.workers()[1].pid
    kill(killed)
    restarting = run.wait_for(Restarting)
    assert restarting.rank == 1
    run.wait_for_step(4, since=restarting.n)
    assert all(killed not in host.state.read_allocated_bytes(gpu) for gpu in range(2))
    run.send(Stop())
    run.wait_for_end()
    assert free(host)


@pytest.mark.long
def test_ranks_without_memory_use_smaller_micro_batches(use: Use, job: Make, start_run: StartRun) -> None:
    fields = {"batch_size": 64, "image_size": 320, "model": "resnet18", "precision": "fp32", "strategy": "ddp"}
    host = use(2, memory_mib=400)
    run = start_run(job(host, **fields)).completed(patience_s=150)
    restarts = run.list_events(Restarting)
    assert [each.changes["accumulation"] for each in restarts] == [2 ** (1 + number) for number in range(len(restarts))]
    assert restarts
    assert all("memory" in each.cause for each in restarts)


def test_hung_gpu_ends_the_attempt_within_the_timeout(use: Use, job: Make, start_run: StartRun) -> None:
    host = use(2)
    run = start_run(job(host, strategy="ddp", epochs=1000, restarts=0), limits=Limits(stuck=2.0, first_step=600.0))
    run.wait_for_step(5)
    host.state.set_fault(0, hangs=True)
    finished = run.wait_for_end()
    assert finished.outcome == "failed"
    assert "No progress for" in finished.cause or "Rank 0 blocks the run" in finished.cause
    assert free(host)


@pytest.mark.long
def test_train_command_takes_gpu_indices(use: Use, images: Path) -> None:
    host = use(2)
    answer = terminal.footplate(
        "train", str(images), "--model", "mnist_cnn", "--image-size", "16", "--epochs", "1", "--devices", "1,0",
        "--strategy", "dp", "--predictions", "0",
    )  # fmt: skip
    assert answer.code == 0, answer
    assert "Completed" in answer.out
    assert free(host)


UNSPECIFIED_LAUNCH_FAILURE = 719


def use_gpus_that_can_be_lost(use: Use, gpus: int) -> tuple[CudaMachine, Callable[[int], None]]:
    """Create a simulated machine with `gpus` GPUs.

    Returns the machine, and a function that removes the GPU with a given index from the view of CUDA and NVML.
    """
    host = use(gpus)
    files = [host.folder / f"lost-{number}" for number in range(gpus)]
    host.nvml.write(
        [make_gpu_profile(number, used=0, reserved=0, lost_file=str(file)) for number, file in enumerate(files)],
        driver_version="595.58.03",
    )

    def lose(number: int) -> None:
        files[number].touch()
        host.state.set_fault(number, error=UNSPECIFIED_LAUNCH_FAILURE)

    return host, lose


def test_run_continues_without_a_lost_gpu(use: Use, job: Make, start_run: StartRun) -> None:
    host, lose = use_gpus_that_can_be_lost(use, 2)
    run = start_run(job(host, strategy="ddp", epochs=1000, checkpoint_steps=2, on_lost_device="fewer"))
    run.wait_for_checkpoint(2)
    lose(1)
    fault = run.wait_for(Restarting)
    assert fault.kind == "fault"
    fewer = run.wait_for(Restarting, since=fault.n)
    assert fewer.kind == "lost_gpu"
    assert fewer.devices == (host.uuids[0],)
    assert fewer.changes == {"strategy": "single", "accumulation": 2}
    assert host.uuids[1] in fewer.cause
    run.wait_for_step(4, since=fewer.n)
    run.send(Stop())
    assert run.wait_for_end().outcome == "stopped"


def test_run_that_needs_its_gpus_fails_and_names_the_lost_one(use: Use, job: Make, start_run: StartRun) -> None:
    host, lose = use_gpus_that_can_be_lost(use, 3)
    run = start_run(job(host, strategy="ddp", epochs=1000, checkpoint_steps=2))
    run.wait_for_checkpoint(2)
    lose(1)
    finished = run.wait_for_end()
    assert finished.outcome == "failed"
    assert host.uuids[1] in finished.cause
    assert len(run.list_events(Restarting)) == 1
    (failed,) = run.list_events(Failed)
    assert (failed.kind, failed.devices) == ("lost_gpu", (host.uuids[1],))
    assert failed.changes == {"accumulation": 2, "devices": (host.uuids[0], host.uuids[2])}
    before = run.last_n
    run.resume(**failed.changes)
    run.wait_for_step(4, since=before)
    run.send(Stop())
    assert run.wait_for_end(since=before).outcome == "stopped"
