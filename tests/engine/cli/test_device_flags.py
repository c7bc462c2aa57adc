"""Values of ``--devices``."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from engine.cli import children, train
from engine.cli.arguments import needs_gpus, resolve_devices
from engine.cli.main import create_parser, main
from engine.cli.search import build_search
from engine.cli.terminal import BAD_REQUEST, CommandError
from engine.contract.devices import Cpu, Gpu, Nvml, Snapshot
from engine.contract.inference.prediction import PredictRequest
from tests.gui.sources.written_runs import write_run
from tests.support.searches import make_small_job

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


def test_search_resolves_cuda_indices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "read_snapshot", lambda: MACHINE)
    monkeypatch.setattr(train, "validate", lambda _options: (make_small_job(), []))
    flags = ["search", "--name", "a", "--vary", "epochs=1,2", "--devices", "1,0"]
    search, problems = build_search(create_parser().parse_args(flags))
    assert search is not None, problems
    assert search.devices == (A, B)


@pytest.mark.parametrize(("flags", "is_reported"), [((), False), (("--devices", "0"), True)])
def test_unreadable_devices_are_reported_if_gpus_are_requested(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: tuple[str, ...], is_reported: bool
) -> None:
    monkeypatch.setattr(children, "read_snapshot", Mock(side_effect=children.ChildFailed("it is gone")))
    arguments = ["train", str(tmp_path), "--model", "mnist_cnn", *flags]
    options, options.unknown = create_parser().parse_known_args(arguments)
    _, problems = train.validate(options)
    assert ("devices" in [problem.field for problem in problems]) == is_reported


def test_devices_reports_unknown_cuda_indices() -> None:
    values: dict[str, Any] = {"devices": ["2", "1"]}
    problems = resolve_devices(values, MACHINE)
    assert [str(problem) for problem in problems] == ["CUDA finds no GPU 2 on this machine. Available: 0, 1."]
    for message, remedy in (("No driver is loaded.",) * 2, ("", "Use --devices cpu.")):
        empty = msgspec.structs.replace(MACHINE, gpus=(), nvml=Nvml("no_driver", message))
        assert [problem.remedy for problem in resolve_devices({"devices": ["0"]}, empty)] == [remedy]


@pytest.mark.parametrize(
    ("trained_on", "flags", "devices"),
    [
        (("cpu", "cpu"), (), ("cpu", "cpu")),
        (("node1:cpu", "GPU-cccc"), (), ("GPU-cccc",)),
        (("node1:cpu", "node1:GPU-1"), (), ("cpu",)),
        (("cpu",), ("--devices", "0,cpu"), (B, "cpu")),
        (("cpu",), ("--devices", "7"), None),
    ],
)
def test_model_is_used_on_local_devices(
    trained_on: tuple[str, ...],
    flags: tuple[str, ...],
    devices: tuple[str, ...] | None,
    *,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    requests: list[PredictRequest] = []
    monkeypatch.setattr(children, "read_snapshot", lambda: MACHINE)

    def refuse(request: PredictRequest, **_options: Any) -> None:
        requests.append(request)
        raise CommandError

    monkeypatch.setattr(children, "run_in_child", refuse)
    assert main(["predict", str(write_run(8, devices=trained_on).path), "one.png", *flags]) == BAD_REQUEST
    assert [request.devices for request in requests] == ([devices] if devices else [])
    assert ("CUDA finds no GPU 7" in capsys.readouterr().err) == (devices is None)


def test_job_that_cannot_be_read_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(8)
    run.job_file.write_text("epochs = ")
    assert main(["predict", str(run.path), "one.png"]) == BAD_REQUEST
    assert f"The job of {run.run_id} can't be read." in capsys.readouterr().err


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
