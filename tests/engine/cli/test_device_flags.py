"""Values of ``--devices``, and formatting of tables."""

from __future__ import annotations

from typing import Any

import pytest

from engine.cli import children
from engine.cli.arguments import needs_gpus, resolve_devices
from engine.cli.main import main
from engine.cli.terminal import BAD_REQUEST, CommandError, format_table
from engine.contract.devices import Cpu, Gpu, Nvml, Snapshot
from engine.contract.inference.prediction import PredictRequest
from tests.gui.sources.written_runs import write_run

A, B = "GPU-aaaa", "GPU-bbbb"
MACHINE = Snapshot(
    time=0.0,
    host="h",
    nvml=Nvml("ok"),
    gpus=(
        Gpu(uuid=A, name="slow", nvml_index=0, cuda_index=1),
        Gpu(uuid=B, name="fast", nvml_index=1, cuda_index=0),
        Gpu(uuid="GPU-cccc", name="unknown to CUDA", nvml_index=2),
    ),
    cpu=Cpu(name="c", core_load_percent=(), load_percent=0.0, memory_used_bytes=0, memory_total_bytes=1),
)


def test_devices_resolves_cuda_indices() -> None:
    values: dict[str, Any] = {"devices": ["0", "1", "GPU-cccc"]}
    assert needs_gpus(values)
    assert resolve_devices(values, MACHINE) == []
    assert values["devices"] == [B, A, "GPU-cccc"]


def test_devices_reports_unknown_cuda_indices() -> None:
    values: dict[str, Any] = {"devices": ["2", "1"]}
    problems = resolve_devices(values, MACHINE)
    assert [str(problem) for problem in problems] == ["CUDA finds no GPU 2 on this machine. Available: 0, 1."]


def test_lists_may_have_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[PredictRequest] = []

    def refuse(request: PredictRequest, **_options: Any) -> None:
        requests.append(request)
        raise CommandError

    monkeypatch.setattr(children, "run_in_child", refuse)
    main(["predict", str(write_run(8).path), "one.png", "--devices", "cpu, cpu,", "--format", "csv, json"])
    (request,) = requests
    assert (request.devices, request.formats) == (("cpu", "cpu"), ("csv", "json"))


def test_submit_leaves_devices_to_slurm(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "/nowhere", "--devices", "cpu", "--print"]) == BAD_REQUEST
    assert capsys.readouterr().err.count("footplate: --devices: SLURM chooses the devices.") == 1


def test_devices_cpu_needs_no_gpus() -> None:
    assert not needs_gpus({"devices": ["cpu", "cpu"]})
    assert not needs_gpus({})

    assert format_table(("A", "B"), [("xx", "y")]) == ["A   B", "xx  y"]
