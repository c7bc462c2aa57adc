"""``footplate gpus`` in a child process, on the NVML stub."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil
import pytest

from engine.cli import doctor
from engine.cli.gpus.command import NvmlReporter
from engine.contract.devices import Nvml, Snapshot
from engine.gpus.sentences import ASKING, create_silent_state
from tests.engine.cli.terminal import command, footplate, run_in_this_process
from tests.support.cases import mark_long_cases
from tests.support.nvml_stub import DRIVER_NOT_LOADED, NvmlStub, make_gpu_profile, uuid_of

QUICK = ("--watch", "--interval", "0.1")

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Yield a function that starts `footplate gpus` with arguments and additional environment variables.

    The processes are killed after the test.
    """
    started: list[subprocess.Popen[str]] = []

    def launch(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command("gpus", *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield launch
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def sampler_of(process: subprocess.Popen[str]) -> psutil.Process:
    return next(child for child in psutil.Process(process.pid).children() if "engine.gpus" in child.cmdline())


def test_gpus_prints_a_table_without_unicode(nvml_stub: NvmlStub) -> None:
    nvml_stub.write([make_gpu_profile(0)])
    answer = footplate("gpus", PYTHONIOENCODING="ascii", **nvml_stub.environment)
    assert answer.code == 0, answer.err
    assert "H200" in answer.out


@pytest.fixture
def stub_here(nvml_stub: NvmlStub, monkeypatch: pytest.MonkeyPatch) -> NvmlStub:
    """Make commands that are executed in this process use the NVML stub, by environment variables. Return the stub."""
    for name, value in nvml_stub.environment.items():
        monkeypatch.setenv(name, value)
    return nvml_stub


def test_gpus_json_is_the_snapshot(stub_here: NvmlStub) -> None:
    stub_here.write([make_gpu_profile(0), make_gpu_profile(1)])
    answer = run_in_this_process("gpus", "--json")
    (line,) = answer.out.splitlines()
    snapshot = msgspec.json.decode(line, type=Snapshot)
    assert [gpu.uuid for gpu in snapshot.gpus] == [uuid_of(0), uuid_of(1)]


def test_gpus_watch_json_ends_with_its_reader(nvml_stub: NvmlStub, start: Start) -> None:
    nvml_stub.write([make_gpu_profile(0)])
    process = start("--json", *QUICK, **nvml_stub.environment)
    assert process.stdout is not None
    assert process.stderr is not None
    times = [msgspec.json.decode(process.stdout.readline(), type=Snapshot).time for _ in range(4)]
    assert times == sorted(times)
    assert times[-1] - times[1] < 2.0
    process.stdout.close()
    assert process.wait(120) == 0
    assert process.stderr.read() == ""
    process.stdout = None


def test_gpus_watch_tables_end_with_their_reader(nvml_stub: NvmlStub, start: Start) -> None:
    nvml_stub.write([make_gpu_profile(0)])
    process = start(*QUICK, **nvml_stub.environment)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(120) == 0
    assert process.stderr.read() == ""
    process.stdout = None


def test_gpus_csv_has_a_header_and_a_line_per_gpu(nvml_stub: NvmlStub, start: Start) -> None:
    nvml_stub.write([make_gpu_profile(0, utilization=33), make_gpu_profile(1)])
    process = start("--csv", *QUICK, **nvml_stub.environment)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(7)]
    rows = list(csv.DictReader(lines))
    assert [row["uuid"] for row in rows] == [uuid_of(0), uuid_of(1)] * 3
    assert {row["utilization_percent"] for row in rows if row["index"] == "0"} == {"33"}


@pytest.mark.parametrize("lost", mark_long_cases([0, 1, 2], everyday=[1]))
def test_gpus_shows_a_lost_gpu(stub_here: NvmlStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int) -> None:
    trigger = tmp_path / "lost"
    trigger.touch()
    stub_here.write(make_gpu_profile(index, **({"lost_file": trigger} if index == lost else {})) for index in range(3))
    table, as_json, as_csv = (run_in_this_process("gpus", *flags).out for flags in ((), ("--json",), ("--csv",)))
    assert f"GPU {lost} is lost" in table
    gpus = msgspec.json.decode(as_json.splitlines()[0], type=Snapshot).gpus
    assert [(gpu.nvml_index, gpu.lost) for gpu in gpus] == [(index, index == lost) for index in range(3)]
    states = [row["state"] for row in csv.DictReader(as_csv.splitlines())]
    assert states == ["lost" if index == lost else "ok" for index in range(3)]
    monkeypatch.setattr(doctor, "_probe_pytorch", lambda: {"error": "PyTorch is not probed."})
    assert f"GPU {lost} is lost" in run_in_this_process("doctor").out


def test_gpus_csv_without_gpus_reports_the_reason(stub_here: NvmlStub, monkeypatch: pytest.MonkeyPatch) -> None:
    stub_here.write([make_gpu_profile(0)], init=DRIVER_NOT_LOADED)
    answer = run_in_this_process("gpus", "--csv")
    assert answer.code == 0
    assert len(answer.out.splitlines()) == 1
    assert "restart the computer" in answer.err
    monkeypatch.setattr(doctor, "_probe_pytorch", lambda: {"error": "PyTorch is not probed."})
    assert "Memory" in run_in_this_process("doctor").out


def test_nvml_reporter_reports_each_failure_once(capsys: pytest.CaptureFixture[str]) -> None:
    nvml_reporter = NvmlReporter()
    hangs, well = [create_silent_state(seconds) for seconds in (5, 6)], Nvml("ok")
    for nvml in (Nvml("not_answering", ASKING), well, *hangs, well, *hangs):
        nvml_reporter.report(nvml)
    assert capsys.readouterr().err.count("NVML is not answering (for 5 s)") == 2


def test_gpus_reports_a_killed_sampler(nvml_stub: NvmlStub, start: Start) -> None:
    nvml_stub.write([make_gpu_profile(0)])
    process = start("--json", *QUICK, **nvml_stub.environment)
    assert process.stdout is not None
    process.stdout.readline()
    sampler_of(process).kill()
    _, expected = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "the devices could not be read" in expected
    assert "signal 9" in expected


def test_gpus_watch_ends_its_children_at_ctrl_c(nvml_stub: NvmlStub, start: Start) -> None:
    nvml_stub.write([make_gpu_profile(0)])
    process = start(*QUICK, **nvml_stub.environment)
    assert process.stdout is not None
    process.stdout.readline()
    sampler = sampler_of(process)
    assert sampler.cmdline()[-3:] == ["--interval", "0.1", "--listen"]
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130
    psutil.wait_procs([sampler], timeout=120)
    assert not sampler.is_running()


def test_gpus_watch_repeats_tables_without_terminal(nvml_stub: NvmlStub, start: Start) -> None:
    nvml_stub.write([make_gpu_profile(0, utilization=87)])
    process = start(*QUICK, **nvml_stub.environment)
    assert process.stdout is not None
    heads = 0
    deadline = time.monotonic() + 120
    while heads < 3 and time.monotonic() < deadline:
        heads += process.stdout.readline().startswith("GPU")
    assert heads == 3


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--interval", "2"), "--interval needs --watch"),
        (("--watch", "--interval", "0.04"), "between 0.05 and 3600 seconds"),
        (("--watch", "--interval", "3601"), "argument --interval: 3601 is not a valid interval"),
        (("--watch", "--interval", "soon"), "soon is not a valid interval"),
        (("--prometheus", "http"), "http is not a valid port"),
        (("--prometheus", "65536"), "from 1 to 65535"),
        (("--json", "--csv"), "not allowed with"),
        (("--json", "--details"), "not allowed with"),
    ],
)
def test_gpus_refuses_bad_requests(arguments: tuple[str, ...], expected: str) -> None:
    answer = run_in_this_process("gpus", *arguments)
    assert answer.code == 2
    assert expected in answer.err
    assert answer.out == ""
