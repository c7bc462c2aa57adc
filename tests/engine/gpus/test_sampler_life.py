"""Timing of the GPU sampler, and the exit of all its processes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from engine.contract.device_history import history_file, read_history
from engine.contract.devices import CPU, Snapshot
from tests.engine.gpus.conftest import ROOT, Start, has_gpus, readers_of
from tests.engine.supervisor.supervised import wait_until_exited
from tests.support.nvml_stub import NvmlStub, make_gpu_profile, uuid_of


def test_once_waits_for_nvml_and_cuda(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write([make_gpu_profile(0), make_gpu_profile(1)])
    sampler = start_sampler("--once", "--save-history", stub=nvml_stub, **nvml_stub.cuda_order(1, 0))
    snapshot = sampler.next()
    assert [gpu.cuda_index for gpu in snapshot.gpus] == [1, 0]
    assert sampler.process.wait(120) == 0
    ((_, values),) = read_history(history_file())
    assert list(values) == [uuid_of(0), uuid_of(1), CPU]
    assert [values[uuid_of(index)]["utilization_percent"] for index in range(2)] == [5, 15]
    assert values[CPU]["memory_used_bytes"] == pytest.approx(snapshot.cpu.memory_used_bytes, rel=1e-4)
    assert "nvlink_sent_bytes_per_s" in values[uuid_of(0)]


def test_reader_exits_with_a_killed_sampler(nvml_stub: NvmlStub, start_sampler: Start, tmp_path: Path) -> None:
    trigger = tmp_path / "hang"
    nvml_stub.write([make_gpu_profile(0)], hang_file=trigger)
    sampler = start_sampler("--interval", "0.1", stub=nvml_stub)
    sampler.wait_for(has_gpus)
    readers = readers_of(sampler)
    assert readers
    trigger.touch()  # only the kernel can end the process now
    sampler.process.kill()
    wait_until_exited(readers)


def test_sampler_exits_with_its_killed_parent(nvml_stub: NvmlStub) -> None:
    nvml_stub.write([make_gpu_profile(0)])
    starter = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'engine.gpus', '--interval', '0.1'])"
    with subprocess.Popen(
        [sys.executable, "-c", starter], stdout=subprocess.PIPE, env=os.environ | nvml_stub.environment, cwd=ROOT
    ) as parent:
        assert parent.stdout is not None
        while not msgspec.json.decode(parent.stdout.readline(), type=Snapshot).gpus:
            continue
        family = psutil.Process(parent.pid).children(recursive=True)
        parent.kill()
        # The read end of its output stays open, so that only the parent's death can end it.
        wait_until_exited(family)


def test_blocked_sampler_exits_with_its_parent(nvml_stub: NvmlStub) -> None:
    nvml_stub.write([make_gpu_profile(index) for index in range(8)])
    starter = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'engine.gpus', '--interval', '0.05'])"
    fcntl = pytest.importorskip("fcntl")
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    with subprocess.Popen(
        [sys.executable, "-c", starter], stdout=writing, env=os.environ | nvml_stub.environment, cwd=ROOT
    ) as parent:
        deadline = time.monotonic() + 120
        while select.select([], [writing], [], 0)[1]:  # until the pipe is full
            assert time.monotonic() < deadline
        family = psutil.Process(parent.pid).children(recursive=True)
        sampler = next(process for process in family if "engine.gpus" in process.cmdline())
        switches, since = sampler.num_ctx_switches(), time.monotonic()
        while time.monotonic() < since + 0.5:  # until the process blocks in its write
            assert time.monotonic() < deadline
            psutil.wait_procs([sampler], timeout=0.05)
            if sampler.num_ctx_switches() != switches:
                switches, since = sampler.num_ctx_switches(), time.monotonic()
        parent.kill()
        wait_until_exited(family)
    os.close(reading)
    os.close(writing)


def test_sampler_survives_the_thread_that_started_it(nvml_stub: NvmlStub) -> None:
    nvml_stub.write([make_gpu_profile(0)])
    starter = """if True:
        import subprocess, sys, threading
        def start():
            global child
            child = subprocess.Popen([sys.executable, "-m", "engine.gpus", "--interval", "0.1"], stdout=subprocess.PIPE)
            child.stdout.readline()
        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
        for _ in range(20):
            assert child.stdout.readline()
        child.kill()
        child.wait()
    """
    command = [sys.executable, "-c", starter]
    done = subprocess.run(command, env=os.environ | nvml_stub.environment, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0


def test_broken_pipe_ends_the_sampler_quietly(nvml_stub: NvmlStub) -> None:
    nvml_stub.write([make_gpu_profile(0)])
    with subprocess.Popen(
        [sys.executable, "-m", "engine.gpus", "--interval", "0.1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | nvml_stub.environment,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(120) == 0
        assert process.stderr.read() == b""


def test_ctrl_c_returns_130(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write([make_gpu_profile(0)])
    sampler = start_sampler("--interval", "0.1", stub=nvml_stub)
    sampler.wait_for(has_gpus)
    readers = readers_of(sampler)
    sampler.process.send_signal(signal.SIGINT)
    assert sampler.process.wait(120) == 130
    wait_until_exited(readers)


def test_snapshots_follow_the_interval(nvml_stub: NvmlStub, start_sampler: Start, tmp_path: Path) -> None:
    nvml_stub.write([make_gpu_profile(0)], calls_file=tmp_path / "calls")
    sampler = start_sampler("--interval", "0.5", stub=nvml_stub)
    sampler.wait_for(has_gpus)
    times, taken = [sampler.next().time for _ in range(5)], 5
    while times[-1] - times[0] > 3.5:  # repeat on a busy machine
        times, taken = [*times[1:], sampler.next().time], taken + 1
    assert times[-1] - times[0] >= 1.3
    assert (tmp_path / "calls").read_text().count(" utilization\n") <= 2 * taken + 3, "readings follow it, too"


def test_first_nvml_answer_is_sent_at_once(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write([make_gpu_profile(0)])
    assert start_sampler("--interval", "600", stub=nvml_stub).wait_for(has_gpus).gpus


def test_each_snapshot_has_a_new_reading(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write([make_gpu_profile(0, wave=1)])
    sampler = start_sampler("--interval", "0.3", stub=nvml_stub)
    sampler.wait_for(has_gpus)
    advances, before = 0, None
    while advances < 4:  # immediately, unless the machine is very busy
        after = sampler.next().gpus[0].utilization_percent or 0
        advances += before is not None and (after - before) % 101 == 7
        before = after


def test_watchdog_loads_no_torch_qt_or_nvml() -> None:
    code = "import engine.gpus.__main__, sys; print({'torch', 'PySide6', 'pynvml', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "set()"
