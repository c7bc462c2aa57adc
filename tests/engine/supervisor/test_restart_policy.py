"""Continuation of jobs on the remaining devices after a machine or a GPU is lost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import pytest

from engine.contract.events import CheckpointSaved, Failed, FailureKind, Restarting
from engine.contract.job import Job
from engine.runs.folder import create_run
from engine.supervisor import restart_policy
from engine.supervisor.restart_policy import MAX_ROLL_BACKS, RestartPolicy


def lose_machine(job: Job, machine: str = "node2") -> Failed:
    rank = next(rank for rank, device in enumerate(job.parallel.devices) if device.startswith(machine))
    return Failed(cause=f"{machine} does not respond.", rank=rank, kind="lost_machine")


def make_job(**fields: object) -> Job:
    devices = ("node1:cpu", "node1:cpu", "node2:cpu", "node2:cpu")
    return Job.from_fields(
        **({"strategy": "ddp", "devices": devices, "batch_size": 12, "on_lost_device": "fewer"} | fields)
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("job", "left", "changes"),
    [
        (make_job(), 2, {"accumulation": 2}),
        (make_job(strategy="fsdp", accumulation=3), 2, {"accumulation": 6}),
        (make_job(devices=("cpu", "node1:cpu", "node2:cpu")), 2, {"accumulation": 2}),
        (make_job(devices=("cpu", "node1:cpu", "node2:cpu"), accumulation=2, batch_size=13), 2, {"accumulation": 3}),
        (make_job(devices=("node1:cpu", "cpu", "node2:cpu"), strategy="tp", model="vit_b_16"), 2, {}),
        (make_job(devices=(*("node1:cpu",) * 4, *("node2:cpu",) * 4), strategy="hsdp"), 4, {"accumulation": 2}),
        (make_job(devices=(*("node1:cpu",) * 4, *("node2:cpu",) * 4), strategy="ddp_tp", model="vit_b_16"), 4, {}),
        (make_job(devices=("cpu", "node0:cpu", "node2:cpu", "node2:cpu")), 2, {"accumulation": 2}),
        (make_job(devices=("cpu", "cpu", "node2:cpu")), 2, {"accumulation": 2}),
    ],
)
def test_lost_machine_keeps_the_batch_size(
    job: Job, left: int, changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart_policy, "usable_cores", lambda: 11 - 2 * left)
    run = create_run(job)
    policy = RestartPolicy(run, job)
    restarting = policy.handle_failure(lose_machine(job))
    assert isinstance(restarting, Restarting)
    assert len(restarting.devices) == left
    assert not any(device.startswith("node2") for device in restarting.devices)
    assert restarting.changes == changes
    specs = policy.prepare_start()
    assert policy.world_size == left
    assert [(spec.rank, spec.world_size, spec.threads) for spec in specs] == [
        (rank, left, 3 if left == 2 else 1) for rank in range(left)
    ]
    assert all((spec.devices, spec.run_folder) == (restarting.devices, str(run.path)) for spec in specs)
    assert policy.job.training.batch_size == job.training.batch_size
    assert run.job() == policy.job, "it holds for later executions, too"


def test_single_remaining_device_changes_the_strategy() -> None:
    job = make_job(devices=("node1:cpu", "cpu", "node2:cpu"))
    policy = RestartPolicy(create_run(job), job)
    policy.handle_failure(lose_machine(job))
    assert policy.job.parallel.strategy == "ddp"
    alone = policy.handle_failure(lose_machine(policy.job, "node1"))
    assert isinstance(alone, Restarting)
    assert (alone.devices, alone.changes) == (("cpu",), {"strategy": "single", "accumulation": 4})


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (make_job(on_lost_device="wait"), ""),
        (make_job(strategy="hsdp"), "It is needed: Hybrid"),
        (make_job(strategy="hsdp", devices=("node1:cpu", *("node2:cpu",) * 3)), "It is needed: Hybrid"),
        (
            make_job(
                devices=(*("node1:cpu",) * 4, *("node2:cpu",) * 2),
                strategy="ddp_pipeline",
                model="resnet18",
                microbatches=2,
                batch_size=18,
            ),
            "It is needed: A part of 9 images of the batch of 18 can't be divided into 2",
        ),
        (
            make_job(strategy="pipeline", model="resnet18", devices=("node1:cpu", "node2:cpu")),
            "It is needed: Pipeline needs at least 2",
        ),
        (make_job(batch_size=4, strategy="ddp", devices=("node2:cpu",) * 2), "The run has no other devices."),
    ],
)
def test_needed_machine_is_waited_for(job: Job, why: str) -> None:
    policy = RestartPolicy(create_run(job), job)
    why_needed = policy.job_without_machine("node2")
    assert not isinstance(why_needed, Job)
    assert (why_needed or "").startswith(why)
    assert (why_needed is None) == (why == "")
    assert isinstance(policy.handle_failure(lose_machine(job)), Failed)


GPUS = tuple(f"GPU-{number}" for number in range(4))


def without_gpu(policy: RestartPolicy) -> Restarting | Failed:
    return policy.handle_failure(Failed(cause="GPU 2 is lost.", kind="lost_gpu", devices=(GPUS[2],)))


def test_run_continues_without_a_lost_gpu_if_it_may() -> None:
    job = make_job(devices=GPUS)
    policy = RestartPolicy(create_run(job), job)
    restarting = without_gpu(policy)
    assert isinstance(restarting, Restarting)
    assert (restarting.kind, restarting.devices) == ("lost_gpu", (GPUS[0], GPUS[1], GPUS[3]))
    assert (restarting.attempt, restarting.max_attempts) == (1, 1)
    assert restarting.changes == {"accumulation": 2}
    assert policy.world_size == 3
    second = policy.handle_failure(Failed(cause="GPU 3 is lost.", kind="lost_gpu", devices=(GPUS[3],)))
    assert isinstance(second, Restarting)
    assert (second.devices, second.attempt, second.max_attempts) == ((GPUS[0], GPUS[1]), 2, 2)


@pytest.mark.parametrize("fields", [{"on_lost_device": "wait"}, {"restarts": 0}])
def test_lost_gpu_ends_the_run_with_the_command_that_resumes_it(fields: dict[str, object]) -> None:
    job = make_job(devices=GPUS, **fields)
    run = create_run(job)
    policy = RestartPolicy(run, job)
    failed = without_gpu(policy)
    assert isinstance(failed, Failed)
    assert failed.changes == {"accumulation": 2, "devices": (GPUS[0], GPUS[1], GPUS[3])}
    assert f"footplate resume {run.run_id} --accumulation 2 --devices GPU-0,GPU-1,GPU-3" in failed.cause
    assert policy.job == run.job() == job


def test_strategy_that_needs_a_lost_gpu_ends_the_run_with_a_reason() -> None:
    job = make_job(devices=GPUS, strategy="hsdp")
    failed = without_gpu(RestartPolicy(create_run(job), job))
    assert isinstance(failed, Failed)
    assert not failed.changes
    assert "It is needed: Hybrid" in failed.cause


def make_failure(kind: FailureKind, step: int | None = None) -> Failed:
    return Failed(cause="It failed.", kind=kind, rank=1, step=step, traceback_file="worker-1.log")


@pytest.mark.parametrize(
    ("fields", "failure"),
    [
        ({}, make_failure("error")),
        ({"restarts": 0}, make_failure("fault")),
        ({"on_not_finite": "stop"}, make_failure("not_finite", 7)),
        ({"on_not_finite": "roll_back"}, make_failure("not_finite")),
        ({"strategy": "single", "devices": ("cpu",)}, make_failure("out_of_memory")),
    ],
)
def test_run_ends_after_failures_that_would_repeat(fields: dict[str, object], failure: Failed) -> None:
    job = make_job(**fields)
    assert RestartPolicy(create_run(job), job).handle_failure(failure) == failure


def test_out_of_memory_skips_microbatches_that_do_not_divide_the_batch() -> None:
    job = make_job(devices=("cpu", "cpu"), strategy="pipeline", model="resnet18", batch_size=27, microbatches=3)
    policy, found = RestartPolicy(create_run(job), job), []
    while isinstance(event := policy.handle_failure(make_failure("out_of_memory")), Restarting):
        found.append((event.changes, event.attempt, event.max_attempts))
    assert found == [({"microbatches": 9}, 1, 2), ({"microbatches": 27}, 2, 2)]


def test_failures_are_counted_by_kind_until_a_later_checkpoint() -> None:
    job = make_job(restarts=2, on_not_finite="roll_back")
    policy = RestartPolicy(create_run(job), job)

    def restart(failure: Failed) -> object:
        event = policy.handle_failure(failure)
        assert isinstance(event, Restarting)
        assert (event.changes, event.devices, event.rank, event.traceback_file) == ({}, (), 1, "worker-1.log")
        return event.kind, event.attempt, event.max_attempts

    def save(kind: Literal["last", "best"], step: int) -> None:
        policy.on_checkpoint(CheckpointSaved(kind=kind, path="x.pt", epoch=1, step=step, bytes=1, seconds=0.1))

    assert restart(make_failure("fault")) == ("fault", 1, 2)
    assert restart(make_failure("not_finite", 7)) == ("not_finite", 1, MAX_ROLL_BACKS)
    assert policy.prepare_start()[3].skip_to == 7
    save("best", 9)
    assert restart(make_failure("fault")) == ("fault", 2, 2)
    save("last", 9)
    assert restart(make_failure("fault")) == ("fault", 1, 2)
    save("last", 9)
    assert restart(make_failure("fault")) == ("fault", 2, 2)
    ended = policy.handle_failure(make_failure("fault"))
    assert isinstance(ended, Failed)
    assert re.findall(r"\d+", ended.cause) == ["2"]
    policy = RestartPolicy(create_run(job), job.with_fields(restarts=1))
    assert "restarted once without" in str([policy.handle_failure(make_failure("fault")) for _ in range(2)][-1])


def test_each_start_resumes_from_the_newest_checkpoint() -> None:
    job = make_job(resume_from="/first.pt")
    run = create_run(job)
    policy = RestartPolicy(run, job)
    (first, *_) = policy.prepare_start()
    assert first.job.checkpoints.resume_from == "/first.pt"
    Path(first.rendezvous).touch()
    (run.checkpoints / "last.pt").touch()
    policy.set_loader_workers(3)
    (second, *_) = policy.prepare_start()
    assert not Path(second.rendezvous).exists()
    assert second.job == job.with_fields(resume_from=str(run.checkpoints / "last.pt"), loader_workers=3)
