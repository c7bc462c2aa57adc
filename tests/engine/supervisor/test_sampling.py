"""Device samples of a run, the names of its devices, and the check that its GPUs are free."""

from __future__ import annotations

import errno
import os
import platform
import selectors
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from engine.contract.devices import Cpu, Gpu, GpuProcess, Nvml, Snapshot
from engine.contract.events import DeviceSample
from engine.gpus.cpu import cpu_name
from engine.supervisor import sampling
from engine.supervisor.environment import describe_environment, run_devices, usable_cores
from engine.supervisor.sampling import FREED_SLACK_BYTES, Sampler, samples_of

A, B = "GPU-aaaa", "GPU-bbbb"
WORKER, OTHER = 100, 200
GIB = 1 << 30


def snapshot(*gpus: Gpu) -> Snapshot:
    cpu = Cpu(
        name="c",
        core_load_percent=(5.0,),
        load_percent=5.0,
        memory_used_bytes=1,
        memory_total_bytes=2,
        temperature_c=3.0,
    )
    return Snapshot(time=0.0, host="h", nvml=Nvml("ok", driver_version="1"), gpus=gpus, cpu=cpu)


def gpu(used: int | None, *pids: int, lists_processes: bool = True, uuid: str = A, lost: bool = False) -> Gpu:
    processes = tuple(GpuProcess(pid) for pid in pids) if lists_processes else None
    return Gpu(uuid=uuid, name="one", nvml_index=0, memory_used_bytes=used, processes=processes, lost=lost)


@pytest.mark.parametrize(
    ("before", "during", "after", "is_free"),
    [
        # NVML has listed the worker, so its absence proves that the GPU is free.
        (gpu(0), gpu(GIB, WORKER), gpu(GIB, WORKER), False),
        (gpu(0), gpu(GIB, WORKER), gpu(0), True),
        (gpu(0), gpu(GIB, WORKER), gpu(9 * GIB, OTHER), True),
        # Free memory proves it, too, if the list of processes is older than the worker's end.
        (gpu(5 * GIB), gpu(6 * GIB, WORKER), gpu(5 * GIB, WORKER), True),
        # In a container NVML lists unknown pids: only the memory counts.
        (gpu(5 * GIB, OTHER), gpu(6 * GIB, OTHER, 4242), gpu(5 * GIB + FREED_SLACK_BYTES + 1, OTHER, 4242), False),
        (gpu(5 * GIB, OTHER), gpu(6 * GIB, OTHER, 4242), gpu(5 * GIB + FREED_SLACK_BYTES, OTHER), True),
        (gpu(None, lists_processes=False), gpu(None, lists_processes=False), gpu(None, lists_processes=False), False),
        (gpu(0), gpu(GIB, WORKER), gpu(0, lost=True), False),
        (gpu(0), gpu(GIB, WORKER), gpu(0, uuid=B), False),
    ],
)
def test_sampler_reports_free_memory(before: Gpu, during: Gpu, after: Gpu, is_free: bool) -> None:
    with selectors.DefaultSelector() as selector:
        sampler, free = Sampler(selector, (A, "GPU-free"), lambda _: None), gpu(0, uuid="GPU-free")
        sampler.add(snapshot(before, free))
        sampler.worker_pids = {WORKER}
        sampler.add(snapshot(during, free))
        ended_at = sampler.latest_at
        assert not sampler.is_memory_free(ended_at), "there is no newer snapshot"
        sampler.add(snapshot(after, free))
        assert sampler.is_memory_free(ended_at) is is_free
        assert not sampler.is_memory_free(sampler.latest_at)


def test_sampler_reports_free_memory_on_cpu() -> None:
    with selectors.DefaultSelector() as selector:
        assert Sampler(selector, ("cpu", "cpu"), lambda _: None).is_memory_free(0.0)


def test_sampler_that_cannot_start_is_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    starts: list[Any] = []
    closed: list[bool] = []
    stopped: list[bool] = []

    def start_second_time(*arguments: object, **_options: object) -> SimpleNamespace:
        starts.append(arguments)
        if len(starts) == 1:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return SimpleNamespace(close=lambda: closed.append(True), stop=lambda: stopped.append(True))

    monkeypatch.setattr(sampling, "LineChild", start_second_time)
    monkeypatch.setattr(sampling, "time", SimpleNamespace(monotonic=lambda: now))
    with selectors.DefaultSelector() as selector:
        sampler = Sampler(selector, ("cpu",), lambda _: None)
        for _ in range(2):
            sampler.start()
            sampler.tick()
        assert len(starts) == 1
        for _ in range(2):
            now += 2 * sampling.RESTART_S
            sampler.tick()
        assert (len(starts), closed, stopped) == (2, [], [])
        _, _, _, on_end = starts[1]
        on_end("an invalid line")
        sampler.tick()
        assert (len(starts), stopped) == (2, [True])
        now += 2 * sampling.RESTART_S
        sampler.tick()
        assert (len(starts), closed) == (3, [True])
        sampler.close()
        assert closed == [True, True]
        sampler.start(delay_s=1.0)
        sampler.close()
        now += 1.0
        sampler.tick()
    assert (len(starts), closed) == (3, [True, True])


def test_samples_of_selects_devices_and_keeps_gaps() -> None:
    fields = {"utilization_percent": 9.0, "memory_total_bytes": 10, "temperature_c": 11.0, "power_w": 12.0}
    busy = msgspec.structs.replace(gpu(8, uuid=B), **fields)
    assert samples_of(snapshot(gpu(7), busy), ("cpu", B, "GPU-gone", A)) == (
        DeviceSample(
            device="cpu", utilization_percent=5.0, memory_used_bytes=1, memory_total_bytes=2, temperature_c=3.0
        ),
        DeviceSample(device=B, memory_used_bytes=8, **fields),
        DeviceSample(device=A, memory_used_bytes=7),
    )
    assert samples_of(snapshot(gpu(7, lost=True)), (A,)) == ()
    received: list[tuple[DeviceSample, ...]] = []
    with selectors.DefaultSelector() as selector:
        sampler = Sampler(selector, (A,), received.append)
        for lost in (True, False):
            sampler.add(snapshot(gpu(7, lost=lost)))
    assert received == [(DeviceSample(device=A, memory_used_bytes=7),)]


def test_run_devices_lists_each_device_with_its_ranks() -> None:
    large = msgspec.structs.replace(gpu(2, uuid=B), memory_total_bytes=5)
    devices = run_devices((B, "cpu", A, "cpu"), 4, snapshot(gpu(1), large))
    assert [msgspec.structs.astuple(device) for device in devices] == [
        (B, "one", (0,), 5), ("cpu", cpu_name(), (1, 3), 2), (A, "one", (2,), None)
    ]  # fmt: skip
    assert run_devices((A,), 1, snapshot(msgspec.structs.replace(gpu(1), cuda_index=3)))[0].name == "one (GPU 3)"
    assert [(device.name, device.ranks) for device in run_devices((B, A), 1, None)] == [(B, (0,)), (A, (0,))]


def test_environment_names_the_host_and_the_driver() -> None:
    facts = describe_environment(snapshot())
    expected = {"host": platform.node(), "os": platform.platform(), "cores": str(usable_cores()), "driver": "1"}
    assert facts == facts | expected
    assert "driver" not in describe_environment(None)
