"""GPU processes: NVML's lists from the stub, and facts about real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

import msgspec
import psutil
import pytest

from engine.contract.devices import Gpu, GpuProcess, NvmlReading
from engine.gpus import host
from engine.gpus.host import HostProcess, HostProcesses
from tests.engine.gpus.conftest import ROOT, Start, readings
from tests.support import nvml_stub as stubs
from tests.support.nvml_stub import GIB, NvmlStub, make_gpu_profile, make_instance_profile

QUICK = ("--interval", "0.1")
A, B, C = 4000001, 4000002, 4000003  # higher than any pid of Linux

Child = subprocess.Popen[bytes]
StartChild = Callable[..., Child]


@pytest.fixture
def host_processes(monkeypatch: pytest.MonkeyPatch) -> HostProcesses:
    """Return an object that reads process data, and reads the load again at each call instead of caching it.

    The process ids that NVML lists are assumed to be valid on this machine, as outside of a container.
    """
    monkeypatch.setattr(host, "has_foreign_pids", lambda: False)
    monkeypatch.setattr(host, "MIN_LOAD_INTERVAL_S", 0.001)
    return HostProcesses()


@pytest.fixture
def start_child() -> Iterator[StartChild]:
    """Return a function that starts a Python program and waits for its first output.

    The programs are ended after the test.
    """
    started: list[Child] = []

    def start(code: str, *arguments: str) -> Child:
        program = f"print('here', flush=True)\n{code}"
        child = subprocess.Popen(
            [sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        started.append(child)
        assert output(child).readline() == b"here\n"
        return child

    yield start
    for child in started:
        end(child)


def output(child: Child) -> IO[bytes]:
    assert child.stdout is not None
    return child.stdout


def end(child: Child) -> None:
    child.kill()
    child.wait()
    for stream in (child.stdin, child.stdout):
        assert stream is not None
        stream.close()


def processes_of(gpu: Gpu) -> dict[int, GpuProcess]:
    assert gpu.processes is not None
    return {process.pid: process for process in gpu.processes}


def sample_processes(stub: NvmlStub, start_sampler: Start, **profile: object) -> dict[int, GpuProcess]:
    stub.write([make_gpu_profile(0, **profile)])
    return processes_of(start_sampler("--once", stub=stub).next().gpus[0])


def test_process_has_user_name_command_and_start(host_processes: HostProcesses, start_child: StartChild) -> None:
    before = time.time()
    child = start_child("input()", "--mark", "of this test")
    facts = host_processes.read(child.pid)
    assert facts.user == psutil.Process().username()
    assert facts.name == psutil.Process(child.pid).name()
    assert facts.command.startswith(f"{sys.executable} -c print('here'")
    assert facts.command.endswith("--mark of this test")
    assert facts.started == pytest.approx(before, abs=5)
    assert facts.memory_bytes is not None
    assert facts.memory_bytes > 1_000_000
    assert facts.ancestors[0] == os.getpid()
    assert facts.ancestors[1:] == tuple(parent.pid for parent in psutil.Process().parents())


def test_process_command_may_be_invalid_utf_8(host_processes: HostProcesses, start_child: StartChild) -> None:
    child = start_child("input()", os.fsdecode(b"caf\xe9"))
    facts = host_processes.read(child.pid)
    assert facts.command.endswith(r"caf\udce9")
    assert msgspec.json.decode(msgspec.json.encode(facts), type=HostProcess) == facts  # the reader prints this


def test_process_load_is_known_from_the_second_reading(host_processes: HostProcesses, start_child: StartChild) -> None:
    child = start_child("while True: pass")
    process = psutil.Process(child.pid)
    started, before = time.monotonic(), sum(process.cpu_times()[:2])
    assert host_processes.read(child.pid).cpu_percent is None
    deadline = time.monotonic() + 120
    while (used_s := sum(process.cpu_times()[:2]) - before) < 0.3:
        assert time.monotonic() < deadline
    load = host_processes.read(child.pid).cpu_percent
    assert load == pytest.approx(100 * used_s / (time.monotonic() - started), rel=0.3)


def test_process_on_eight_gpus_is_read_once(host_processes: HostProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "MIN_LOAD_INTERVAL_S", 60.0)
    first = host_processes.read(os.getpid())
    assert host_processes.read(os.getpid()) is first


def test_process_command_is_one_truncated_line(host_processes: HostProcesses, start_child: StartChild) -> None:
    command = host_processes.read(start_child("input()\n" * 200).pid).command
    assert len(command) == 300
    assert command.endswith("…")
    assert "\n" not in command


def test_reused_pid_is_identified_again(host_processes: HostProcesses, start_child: StartChild) -> None:
    old, new = start_child("input()", "old"), start_child("input()", "new")
    host_processes.read(old.pid)
    host_processes.read(new.pid)
    host_processes._readings[new.pid] = replace(
        host_processes._readings[old.pid], process=psutil.Process(old.pid)
    )  # as if the old process had this pid
    facts = host_processes.read(new.pid)
    assert facts.command.endswith("new")
    assert facts.cpu_percent is None  # the load since the start of the other process would be meaningless


def test_orphan_has_ancestors_of_its_new_parent(host_processes: HostProcesses, start_child: StartChild) -> None:
    code = (
        "import subprocess, sys\n"
        "orphan = 'import os, signal; print(os.getpid(), flush=True); signal.pause()'\n"
        "subprocess.Popen([sys.executable, '-c', orphan])\n"
        "input()"
    )
    parent = start_child(code)
    pid = int(output(parent).readline())
    try:
        assert host_processes.read(pid).ancestors[:2] == (parent.pid, os.getpid())
        parent.kill()
        parent.wait()
        after = host_processes.read(pid)
        assert parent.pid not in after.ancestors
        assert "signal.pause" in after.command
    finally:
        psutil.Process(pid).kill()


def test_exited_process_is_unknown(host_processes: HostProcesses, start_child: StartChild) -> None:
    child = start_child("input()")
    assert host_processes.read(child.pid).name is not None
    end(child)
    assert host_processes.read(child.pid) == HostProcess()


def test_unused_processes_are_forgotten(
    host_processes: HostProcesses, start_child: StartChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start_child("input()")
    host_processes.read(child.pid)
    monkeypatch.setattr(host, "FORGET_AFTER_S", 0.0)
    host_processes.read(os.getpid())
    assert set(host_processes._readings) == {os.getpid()}


def test_processes_are_unknown_in_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "has_foreign_pids", lambda: True)
    assert HostProcesses().read(os.getpid()) == HostProcess()


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces of pids are Linux's")
def test_foreign_pids_depends_on_the_pid_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: str) -> os.stat_result:
        raise PermissionError

    assert host.has_foreign_pids() is (os.readlink("/proc/self/ns/pid") != "pid:[4026531836]")
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", refuse)
        assert host.has_foreign_pids()


def test_process_in_two_lists_counts_memory_once(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    rows = sample_processes(
        nvml_stub,
        start_sampler,
        process=[f"{B}:1024", f"{A}:512"],
        graphics_process=[f"{C}:64", f"{B}:2048", f"{A}:256"],
    )
    assert list(rows) == [A, B, C]
    assert [(row.kind, row.memory_used_bytes) for row in rows.values()] == [
        ("both", 512),
        ("both", 2048),
        ("graphics", 64),
    ]


def test_mps_clients_are_listed(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    rows = sample_processes(nvml_stub, start_sampler, process=[f"{A}:1024"], mps_process=[f"{B}:2048"])
    assert [(row.pid, row.kind) for row in rows.values()] == [(A, "compute"), (B, "compute")]


def test_implausible_process_memory_is_none(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    rows = sample_processes(nvml_stub, start_sampler, process=[f"{A}:-1", f"{B}:{141 * GIB}", f"{C}:{GIB}"])
    assert [row.memory_used_bytes for row in rows.values()] == [None, None, GIB]


def test_impossible_pids_are_skipped(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    assert list(sample_processes(nvml_stub, start_sampler, process=["0:5", f"{0xFFFFFFFF}:5", f"{A}:5"])) == [A]


def test_implausible_list_falls_back_to_version_2(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    rows = sample_processes(nvml_stub, start_sampler, process=[f"{A}:1024", f"{B}:2048", f"{C}:4096"], long_structs=1)
    assert {pid: row.memory_used_bytes for pid, row in rows.items()} == {A: 1024, B: 2048, C: 4096}


def test_old_driver_lists_processes_of_every_kind(old_nvml_stub: NvmlStub, start_sampler: Start) -> None:
    rows = sample_processes(old_nvml_stub, start_sampler, process=[f"{A}:1024"], graphics_process=[f"{B}:64"])
    assert [(row.pid, row.kind) for row in rows.values()] == [(A, "compute"), (B, "graphics")]


def test_unknown_processes_differ_from_no_processes(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write([make_gpu_profile(0, processes_error=stubs.NOT_SUPPORTED), make_gpu_profile(1)])
    secretive, free = start_sampler("--once", stub=nvml_stub).next().gpus
    assert (secretive.processes, free.processes) == (None, ())


def test_sm_percent_is_zero_for_idle_processes(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    rows = sample_processes(
        nvml_stub, start_sampler, process=[f"{A}:1", f"{B}:1"], sample=[f"{A}:70", f"{C}:20"]
    )  # the last doesn't use this GPU
    assert {pid: row.sm_percent for pid, row in rows.items()} == {A: 70, B: 0}


def test_implausible_sm_percent_is_none(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    rows = sample_processes(nvml_stub, start_sampler, process=[f"{A}:1", f"{B}:1"], sample=[f"{A}:37100", f"{B}:100"])
    assert {pid: row.sm_percent for pid, row in rows.items()} == {A: None, B: 100}


def test_sm_percent_is_zero_without_samples(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    assert sample_processes(nvml_stub, start_sampler, process=[f"{A}:1"])[A].sm_percent == 0


def test_unsupported_sm_percent_is_none(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    rows = sample_processes(nvml_stub, start_sampler, process=[f"{A}:1"], process_utilization_error=stubs.NOT_SUPPORTED)
    assert rows[A].sm_percent is None


def test_sm_sample_counts_once_and_expires(nvml_stub: NvmlStub) -> None:
    past_us = 60_000_000
    nvml_stub.write([make_gpu_profile(0, process=[f"{A}:1", f"{B}:1"], sample=[f"{A}:70:100", f"{B}:50:{past_us}"])])
    tables = (processes_of(reading.gpus[0]) for reading in readings(nvml_stub))
    assert {pid: row.sm_percent for pid, row in next(tables).items()} == {A: 70, B: 0}
    assert any(rows[A].sm_percent == 0 for rows in tables)


def test_newest_sm_sample_wins(nvml_stub: NvmlStub) -> None:
    nvml_stub.write([make_gpu_profile(0, process=[f"{A}:1"], sample=[f"{A}:70:1000", f"{A}:30:2000000"])])
    reading = next(readings(nvml_stub))
    assert processes_of(reading.gpus[0])[A].sm_percent == 70


def test_process_row_joins_nvml_and_host(nvml_stub: NvmlStub) -> None:
    me = psutil.Process()
    nvml_stub.write([make_gpu_profile(0, process=[f"{me.pid}:1024"], sample=[f"{me.pid}:40"])])
    code = (
        "from engine.gpus import host, reader\n"
        "host.has_foreign_pids = lambda: False\n"  # tests may themselves run in a container
        "reader.main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, "0.1", "60"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
        env=os.environ | nvml_stub.environment,
    ) as child:  # fmt: skip
        reading = msgspec.json.decode(output(child).readline(), type=NvmlReading)
        child.kill()
    (row,) = processes_of(reading.gpus[0]).values()
    assert (row.pid, row.memory_used_bytes, row.sm_percent, row.kind) == (me.pid, 1024, 40, "compute")
    assert (row.user, row.name, row.started) == (me.username(), me.name(), pytest.approx(me.create_time(), abs=1))
    assert row.ancestors == tuple(parent.pid for parent in me.parents())
    assert row.host_memory_bytes is not None
    assert row.command


def test_mig_processes_are_listed_in_their_instance_only(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    instances = [
        make_instance_profile(0, 0, process=[f"{A}:1024"]),
        make_instance_profile(0, 1, process=[f"{B}:2048"], sample=[f"{B}:50"]),
    ]
    nvml_stub.write([make_gpu_profile(0, mig=1, instances=instances, process=None)])
    gpu, one, other = start_sampler("--once", stub=nvml_stub).next().gpus
    assert gpu.processes == ()
    assert [(row.pid, row.memory_used_bytes, row.sm_percent) for row in processes_of(one).values()] == [(A, 1024, None)]
    assert [(row.pid, row.memory_used_bytes, row.sm_percent) for row in processes_of(other).values()] == [
        (B, 2048, None)
    ]


def test_basics_list_pids_and_gpu_memory(nvml_stub: NvmlStub, start_sampler: Start, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    nvml_stub.write([make_gpu_profile(0, process=[f"{A}:1024"], sample=[f"{A}:50"])], calls_file=calls)
    (gpu,) = start_sampler("--once", "--only-basics", stub=nvml_stub).next().gpus
    assert gpu.processes == (GpuProcess(A, memory_used_bytes=1024),)
    assert "process_utilization" not in calls.read_text()
    assert "topology" not in calls.read_text()
