"""The parts of the supervisor that decide something: causes, environments, whether a GPU is free, endpoints."""

from __future__ import annotations

import selectors
import signal
import socket
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from engine.contract.devices import Cpu, Gpu, GpuProcess, Nvml, Snapshot
from engine.contract.events import ENCODE, CheckpointSaved, Failed, RunFinished, Validation
from engine.contract.job import Job
from engine.contract.worker import WorkerDone, WorkerSpec
from engine.processes import failures
from engine.processes.worker_process import worker_environment
from engine.runs.folder import create_run
from engine.supervisor.endpoint import open_endpoint
from engine.supervisor.environment import run_devices
from engine.supervisor.restart_policy import world_size
from engine.supervisor.results import Results
from engine.supervisor.sampling import Sampler, samples_of

A, B = "GPU-aaaa", "GPU-bbbb"
OURS, THEIRS = 100, 200


def snapshot(*gpus: Gpu) -> Snapshot:
    cpu = Cpu(name="c", core_load_percent=(5.0,), load_percent=5.0, memory_used_bytes=1, memory_total_bytes=2)
    return Snapshot(time=0.0, host="h", nvml=Nvml("ok", driver_version="1"), gpus=gpus, cpu=cpu)


def gpu(used: int | None, *pids: int, known: bool = True, uuid: str = A, lost: bool = False) -> Gpu:
    processes = tuple(GpuProcess(pid) for pid in pids) if known else None
    return Gpu(uuid=uuid, name="one", nvml_index=0, memory_used_bytes=used, processes=processes, lost=lost)


@pytest.mark.parametrize(
    ("before", "during", "after", "free"),
    [
        # NVML names our pids: their absence is a proof, whatever others do meanwhile.
        (gpu(0), gpu(1 << 30, OURS), gpu(1 << 30, OURS), False),
        (gpu(0), gpu(1 << 30, OURS), gpu(0), True),
        (gpu(0), gpu(1 << 30, OURS), gpu(9 << 30, THEIRS), True),
        # So is the memory, when the processes were last asked for before the workers were gone.
        (gpu(5 << 30), gpu(6 << 30, OURS), gpu(5 << 30, OURS), True),
        # In a container NVML does not name them: the memory has to be back to what it was.
        (gpu(5 << 30, THEIRS), gpu(6 << 30, THEIRS, 4242), gpu(6 << 30, THEIRS, 4242), False),
        (gpu(5 << 30, THEIRS), gpu(6 << 30, THEIRS, 4242), gpu(5 << 30, THEIRS), True),
        (gpu(None, known=False), gpu(None, known=False), gpu(None, known=False), False),
        (gpu(0), gpu(1 << 30, OURS), gpu(0, lost=True), False),
        (gpu(0), gpu(1 << 30, OURS), gpu(0, uuid=B), False),
    ],
)
def test_that_a_gpu_counts_as_free_only_when_it_was_seen_so(before: Gpu, during: Gpu, after: Gpu, free: bool) -> None:
    with selectors.DefaultSelector() as selector:
        sampler = Sampler(selector, (A,), lambda _: None)
        sampler._take(snapshot(before))
        sampler.own({OURS})
        sampler._take(snapshot(during))
        gone_at = sampler.latest_at
        assert not sampler.free(gone_at), "nothing newer has been seen"
        sampler._take(snapshot(after))
        assert sampler.free(gone_at) is free


def test_that_a_run_on_the_cpu_has_nothing_to_be_freed() -> None:
    with selectors.DefaultSelector() as selector:
        assert Sampler(selector, ("cpu", "cpu"), lambda _: None).free(0.0)


def test_that_samples_are_of_the_runs_own_devices_and_missing_stays_missing() -> None:
    samples = samples_of(snapshot(gpu(7), gpu(8, uuid=B)), ("cpu", B, "GPU-gone"))
    assert [sample.device for sample in samples] == ["cpu", B]
    assert samples[1].memory_used_bytes == 8
    assert samples[1].power_w is None
    assert samples_of(snapshot(gpu(7, lost=True)), (A,)) == ()


def test_that_workers_see_the_runs_gpus_in_the_jobs_order_and_none_on_the_cpu(tmp_path: Path) -> None:
    def spec(*devices: str) -> WorkerSpec:
        job = Job(devices=devices)
        return WorkerSpec(
            run_folder="r", job=job, rank=0, world_size=2, devices=devices, rendezvous=str(tmp_path), threads=3
        )

    assert worker_environment(spec(B, A))["CUDA_VISIBLE_DEVICES"] == f"{B},{A}"
    assert worker_environment(spec("cpu", "cpu"))["CUDA_VISIBLE_DEVICES"] == ""
    assert worker_environment(spec("cpu"))["OMP_NUM_THREADS"] == "3"


def test_that_devices_are_named_once_with_their_ranks() -> None:
    named = run_devices((B, A), 2, snapshot(gpu(1), gpu(2, uuid=B)))
    assert [(device.id, device.name, device.ranks) for device in named] == [(B, "one", (0,)), (A, "one", (1,))]
    assert run_devices((A,), 1, snapshot(msgspec.structs.replace(gpu(1), cuda_index=3)))[0].name == "one (GPU 3)"
    assert [device.ranks for device in run_devices((B, A), 1, None)] == [(0,), (0,)]
    assert [device.ranks for device in run_devices(("cpu", "cpu", "cpu"), 3, None)] == [(0, 1, 2)]


def test_that_one_worker_drives_all_devices_of_data_parallel() -> None:
    assert world_size(Job(strategy="dp", devices=(A, B))) == 1
    assert world_size(Job(strategy="ddp", devices=(A, B))) == 2
    assert world_size(Job(strategy="single")) == 1


def test_that_the_cause_is_the_failure_that_others_follow_from() -> None:
    lost = Failed(cause="Rank 0: Connection closed by peer [127.0.0.1]", rank=0)
    own = Failed(cause="Rank 1: out of memory", rank=1)
    killed = failures.Failure(Failed(cause="Rank 2 was killed by SIGKILL", rank=2), failures.CERTAIN)
    told = [failures.Failure(event, failures.weight(event)) for event in (lost, own)]
    assert failures.root_cause(told).event is own
    assert failures.root_cause([*told, killed]) is killed
    assert failures.root_cause(told[:1]).event is lost


def test_that_an_abort_by_pytorch_may_follow_from_another_ranks_fault(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    log.write_text("NCCL watchdog: another rank is gone\n")
    aborted = failures.death(0, -signal.SIGABRT, log)
    assert failures.weight_of_death(aborted, -signal.SIGABRT) == failures.FOLLOWING
    own = failures.Failure(Failed(cause="Rank 1: out of memory", rank=1), failures.OWN)
    following = failures.Failure(aborted, failures.FOLLOWING)
    assert failures.root_cause([following, own]) is own
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM):
        assert failures.weight_of_death(failures.death(0, -number, log), -number) == failures.CERTAIN
    assert failures.weight_of_death(failures.death(1, 3, tmp_path / "none.log"), 3) == failures.OWN


def test_that_the_results_of_executions_before_count_however_this_one_ends() -> None:
    def saved(kind: Literal["last", "best"], epoch: int) -> CheckpointSaved:
        path = f"checkpoints/{kind}.pt"
        (run.path / path).touch()
        return CheckpointSaved(kind=kind, path=path, epoch=epoch, step=epoch, bytes=1, seconds=0.0)

    def validated(epoch: int) -> Validation:
        return Validation(epoch=epoch, step=epoch, measures={"top1": epoch / 10}, images=1, seconds=0.0)

    run = create_run(Job())
    results = Results(run)
    assert (results.best, results.best_epoch, results.checkpoints) == ({}, None, ())
    for event in (validated(1), validated(2), saved("best", 1), saved("last", 2)):
        results.take(event)
    assert (results.best, results.best_epoch) == ({"top1": 0.1}, 1), "it is what best.pt holds"
    assert results.checkpoints == ("checkpoints/best.pt", "checkpoints/last.pt")
    results.take_last_word(WorkerDone(stopped=True, best={"top1": 0.2}, best_epoch=2))
    finished = RunFinished(n=1, outcome="paused", best=results.best, best_epoch=results.best_epoch)
    run.events_file.write_bytes(ENCODE.encode(finished) + b"\n")
    (run.path / "checkpoints/best.pt").unlink()
    later = Results(run)
    later.take_last_word(None)
    assert (later.best, later.best_epoch, later.checkpoints) == ({"top1": 0.2}, 2, ("checkpoints/last.pt",))


def test_that_a_worker_without_a_log_is_still_told_of_in_words(tmp_path: Path) -> None:
    event = failures.death(3, -11, tmp_path / "worker-3.log")
    assert event.cause == "Rank 3 was killed by SIGSEGV (signal 11). worker-3.log is empty."
    (tmp_path / "worker-3.log").write_bytes(b"\xff\xfe\n\n" + b"line\n" * 10_000)
    assert failures.death(3, 1, tmp_path / "worker-3.log").cause.endswith("line\nline\nline\nline\nline")


def test_that_a_runtime_folder_too_deep_for_a_socket_means_loopback_with_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    endpoint = open_endpoint(tmp_path)
    try:
        kind, port, token = endpoint.text.split(":")
        assert kind == "tcp"
        assert len(token) > 30
        assert token == endpoint.token
        assert endpoint.listener.getsockname() == ("127.0.0.1", int(port))
    finally:
        endpoint.close()


def test_that_a_peer_of_our_own_is_admitted(tmp_path: Path) -> None:
    endpoint = open_endpoint(tmp_path)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert endpoint.admits(theirs)
    endpoint.close()


def test_that_an_endpoint_that_closes_leaves_the_socket_of_the_next_execution(tmp_path: Path) -> None:
    before, after = open_endpoint(tmp_path), open_endpoint(tmp_path)
    assert before.text == after.text
    before.close()
    assert after.stands
    after.close()
    assert not Path(after.text.removeprefix("unix:")).exists()
