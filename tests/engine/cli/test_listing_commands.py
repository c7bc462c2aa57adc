"""``gpus``, ``runs``, ``catalogue`` and ``doctor``."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import msgspec
import pytest

from engine.cli import doctor
from engine.cli.main import main
from engine.contract.catalogue import Catalogue, load_catalogue
from engine.contract.devices import Ecc, Snapshot
from engine.contract.job import FIELDS
from engine.runs.folder import RunSummary
from engine.runs.notes import change_notes
from tests.engine.cli.machines import busy_gpu, machine
from tests.engine.cli.terminal import command, footplate
from tests.gui.sources.written_runs import a_run


def test_that_gpus_lists_the_cpu_and_says_why_no_gpu_is_there() -> None:
    answer = footplate("gpus", COLUMNS="160")  # in narrow tables a long name is shortened
    assert answer.code == 0
    snapshot = msgspec.json.decode(footplate("gpus", "--json").out, type=Snapshot)
    assert snapshot.cpu.name in answer.out
    assert all(gpu.name.removeprefix("NVIDIA ")[:11] in answer.out for gpu in snapshot.gpus)
    if snapshot.nvml.status != "ok":
        assert snapshot.nvml.message in " ".join(answer.out.split())


def test_that_a_checkout_that_is_not_installed_has_its_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def not_found(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(sys.modules["engine.cli.main"], "version", not_found)
    assert main(["catalogue"]) == 0
    assert "resnet18" in capsys.readouterr().out


def test_that_the_catalogue_is_printed_as_it_ships() -> None:
    answer = footplate("catalogue", "--json")
    assert answer.code == 0
    assert msgspec.json.decode(answer.out, type=Catalogue) == load_catalogue()
    listed = footplate("catalogue").out
    assert all(f"\n{model.id} " in listed for model in load_catalogue().models)


def test_that_no_runs_are_told_with_how_to_make_one() -> None:
    answer = footplate("runs")
    assert answer.code == 0
    assert "footplate train" in answer.out
    assert footplate("runs", "--json").out == ""


def test_that_runs_are_listed_with_what_their_user_says_of_them() -> None:
    run = a_run(8, name="before")
    change_notes(run.path, name="after", tags=("paper", "v2"), favourite=True, text="0.1 was too much")
    a_run(8, "failed", name="other", cause="a fault")
    listed = footplate("runs").out.splitlines()
    assert listed[0].split()[-1] == "TAGS"
    (line,) = (line for line in listed if run.run_id in line)
    assert "after ★" in line
    assert line.endswith("paper, v2")
    summaries = [msgspec.json.decode(line, type=RunSummary) for line in footplate("runs", "--json").out.splitlines()]
    assert {summary.name: (summary.notes, summary.tags) for summary in summaries} == {
        "after": ("0.1 was too much", ("paper", "v2")),
        "other": ("", ()),
    }


def test_that_every_field_of_a_job_has_its_flag() -> None:
    answer = footplate("train", "--help")
    assert answer.code == 0
    assert all(field.flag in answer.out for field in FIELDS.values() if field.name != "dataset")


def test_that_an_unknown_command_is_a_bad_request() -> None:
    answer = footplate("trian")
    assert answer.code == 2
    assert "train" in answer.err


def test_that_doctor_finds_that_training_works_here() -> None:
    answer = footplate("doctor")
    assert answer.code == 0, answer.out
    for topic in ("Python", "torch", "PyTorch: computes on the CPU", "Driver", "Display", "Disk", "Loopback"):
        assert topic in answer.out


def test_that_doctor_finds_a_home_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setenv("FOOTPLATE_HOME", str(tmp_path / "taken"))
    found = {finding.topic: finding for finding in doctor.folders()}
    assert found["Disk"].grade == "broken"
    assert "Set FOOTPLATE_HOME" in found["Disk"].remedy
    assert found["Sockets"].grade == "fine"


def test_that_doctor_tells_what_is_wrong_with_a_gpu_and_what_is_not() -> None:
    broken = busy_gpu(0, ecc=Ecc(uncorrected=2), throttled=("hardware_thermal",))
    limited = busy_gpu(1, throttled=("power_cap",))
    found = {finding.topic: finding for finding in doctor.gpus(machine(broken, limited))}
    assert "for CUDA up to 12.8" in found["Driver"].text
    assert found["GPU 0"].grade == "limited"
    assert "2 uncorrected memory errors" in found["GPU 0"].text
    assert "too hot" in found["GPU 0"].text
    assert found["GPU 1"].grade == "fine"
    assert "limited by the power limit" in found["GPU 1"].text
    assert "Container" not in found


def test_that_doctor_tells_that_a_container_does_not_see_who_uses_a_gpu() -> None:
    found = {finding.topic: finding for finding in doctor.gpus(machine(busy_gpu(0), foreign_pids=True))}
    assert found["Container"].grade == "limited"


def test_that_a_pytorch_that_crashes_is_found_by_doctor() -> None:
    found = list(doctor.pytorch({"error": "PyTorch crashed (exit code -11)."}))
    assert [finding.grade for finding in found if finding.topic == "PyTorch"] == ["broken"]


def test_that_a_reader_that_leaves_early_is_no_error() -> None:
    with subprocess.Popen(command("catalogue", "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0
