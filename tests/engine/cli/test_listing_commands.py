"""``footplate gpus``, ``runs``, ``catalogue`` and ``doctor``."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest
import torch
import torchvision

from engine.cli import children, doctor, listing
from engine.cli.children import ChildFailed
from engine.cli.main import main
from engine.cli.probe import probe
from engine.cli.terminal import CommandError
from engine.contract.catalogue import Catalogue, load_catalogue
from engine.contract.devices import Snapshot
from engine.contract.job import FIELDS
from engine.runs.folder import RunFolder, RunSummary
from engine.runs.notes import change_notes
from engine.runs.slurm_job import SlurmJob, write_slurm
from engine.system import paths
from engine.system.private_network import PrivateNetwork
from tests.engine.cli.machines import machine
from tests.engine.cli.prepared_commands import MACHINE, replace_machine_facts
from tests.engine.cli.terminal import command, footplate, run_in_this_process
from tests.gui.sources.written_runs import write_run


def test_gpus_lists_the_cpu_and_nvml_message() -> None:
    answer = footplate("gpus", COLUMNS="160")  # narrow tables shorten long names
    assert answer.code == 0
    snapshot = msgspec.json.decode(footplate("gpus", "--json").out, type=Snapshot)
    assert snapshot.cpu.name in answer.out
    assert all(gpu.name.removeprefix("NVIDIA ")[:11] in answer.out for gpu in snapshot.gpus)
    if snapshot.nvml.status != "ok":
        assert snapshot.nvml.message in " ".join(answer.out.split())


@pytest.mark.parametrize(("error", "code"), [(CommandError(3), 3), (KeyboardInterrupt(), 130)])
def test_main_returns_the_code_of_an_error(error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_options: object) -> int:
        raise error

    monkeypatch.setattr(listing, "runs", fail)
    assert main(["runs"]) == code


def test_main_works_in_a_checkout(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def not_found(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", not_found)
    assert main(["catalogue"]) == 0
    assert "resnet18" in capsys.readouterr().out


def test_catalogue_json_is_complete() -> None:
    answer = run_in_this_process("catalogue", "--json")
    assert answer.code == 0
    assert msgspec.json.decode(answer.out, type=Catalogue) == load_catalogue()
    listed = run_in_this_process("catalogue").out
    assert all(f"\n{model.id} " in listed for model in load_catalogue().models)


def test_runs_without_runs_hints_at_train() -> None:
    answer = run_in_this_process("runs")
    assert answer.code == 0
    assert "footplate train" in answer.out
    assert run_in_this_process("runs", "--json").out == ""


def test_runs_lists_notes_and_tags() -> None:
    run = write_run(8, name="before")
    change_notes(run.path, name="after", tags=("paper", "v2"), favorite=True, text="0.1 was too much")
    write_run(8, "failed", name="other", cause="a fault")
    listed = run_in_this_process("runs").out.splitlines()
    assert listed[0].split()[-1] == "TAGS"
    (line,) = (line for line in listed if run.run_id in line)
    assert "after ★" in line
    assert line.endswith("paper, v2")
    summaries = [
        msgspec.json.decode(line, type=RunSummary) for line in run_in_this_process("runs", "--json").out.splitlines()
    ]
    assert {summary.name: (summary.notes, summary.tags) for summary in summaries} == {
        "after": ("0.1 was too much", ("paper", "v2")),
        "other": ("", ()),
    }


def test_runs_shows_changed_slurm_states(monkeypatch: pytest.MonkeyPatch) -> None:
    run, ended = write_run(8, None), write_run(8)
    for each, state in ((run, "PENDING"), (ended, "COMPLETED")):
        write_slurm(each.path, SlurmJob(job_id=1, state=state))

    def refresh(runs: Iterable[RunFolder]) -> bool:
        assert [each.path for each in runs] == [run.path]
        write_slurm(run.path, SlurmJob(job_id=1, state="RUNNING"))
        return True

    monkeypatch.setattr(listing, "refresh_slurm_states", refresh)
    states = {line.split()[0]: line.split("  ")[-1] for line in run_in_this_process("runs").out.splitlines()}
    assert (states[run.run_id], states[ended.run_id]) == ("starting (job 1 is running)", "completed")


def test_train_help_lists_every_field() -> None:
    answer = run_in_this_process("train", "--help")
    assert answer.code == 0
    assert all(field.flag in answer.out for field in FIELDS.values() if field.name != "dataset")


def test_main_refuses_unknown_commands() -> None:
    answer = run_in_this_process("trian")
    assert answer.code == 2
    assert "train" in answer.err


def test_doctor_reports_a_working_machine() -> None:
    answer = footplate("doctor")
    assert answer.code == 0, answer.out
    for topic in ("Python", "torch", "PyTorch: computes on the CPU", "Driver", "Display", "Disk", "Loopback"):
        assert topic in answer.out


def test_doctor_reports_an_unwritable_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setenv("FOOTPLATE_HOME", str(tmp_path / "taken"))
    found = {finding.topic: finding for finding in doctor.check_folders()}
    assert found["Disk"].grade == "broken"
    assert "Set FOOTPLATE_HOME" in found["Disk"].remedy
    assert found["Sockets"].grade == "fine"

    def refuse() -> Path:
        raise PermissionError("The folder is a link")

    monkeypatch.setattr(paths, "runtime_folder", refuse)
    *_, sockets = doctor.check_folders()
    assert (sockets.grade, sockets.text.startswith("The folder is a link; set ")) == ("broken", True)


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("WAYLAND_DISPLAY", "w-0", "ok    Display: WAYLAND_DISPLAY=w-0"),
        ("DISPLAY", "", "note  Display: none, so no window; `footplate train` works without one"),
        ("socket.create_connection", ConnectionRefusedError("refused"), "note  Loopback: does not answer (refused)"),
        ("engine.cli.children.read_snapshot", ChildFailed("gone"), "note  NVML: the sampler does not answer: gone"),
    ],
)
def test_doctor_describes_the_machine(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str | Exception, line: str
) -> None:
    """Set an environment variable, or make a function raise an error, by the type of `value`."""
    replace_machine_facts(monkeypatch)
    if isinstance(value, str):
        monkeypatch.setenv(name, value)
    else:
        monkeypatch.setattr(name, Mock(side_effect=value))
    assert f"\n{line}" in run_in_this_process("doctor").out


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has network namespaces")
@pytest.mark.parametrize("is_allowed", [True, False])
def test_doctor_names_the_protection_of_ranks(monkeypatch: pytest.MonkeyPatch, is_allowed: bool) -> None:
    def refuse() -> PrivateNetwork:
        raise PermissionError(1, "Operation not permitted")

    if not is_allowed:
        monkeypatch.setattr(doctor, "PrivateNetwork", refuse)
    elif os.geteuid():
        pytest.skip("the system may not allow it")
    (finding,) = doctor.check_connections()
    assert ("private network, which" in finding.text) is is_allowed
    assert ("Operation not permitted" in finding.text) is not is_allowed


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (
            subprocess.CompletedProcess([], -11, b"", b"Traceback:\n  line\nSegmentation fault\n"),
            "(exit code -11). Segm",
        ),
        (subprocess.CompletedProcess([], 3, b"no JSON", b""), "PyTorch crashed (exit code 3). "),
        (subprocess.TimeoutExpired([], 120), "did not answer within 120 s"),
    ],
)
def test_doctor_explains_a_failed_probe(
    monkeypatch: pytest.MonkeyPatch, result: subprocess.CompletedProcess[bytes] | Exception, error: str
) -> None:
    def run(*_arguments: object, **_options: object) -> subprocess.CompletedProcess[bytes]:
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(doctor, "run_child", run)
    assert error in doctor._probe_pytorch()["error"]


@pytest.mark.parametrize(
    ("snapshot", "last", "code"),
    [(MACHINE, "Training works on the CPU only; see BAD above.", 3), (machine(), "Training works here.", 0)],
)
def test_doctor_ends_with_a_summary(monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot, last: str, code: int) -> None:
    replace_machine_facts(monkeypatch)
    monkeypatch.setattr(doctor, "shared_memory_findings", list)
    monkeypatch.setattr(children, "read_snapshot", lambda: snapshot)
    answer = run_in_this_process("doctor")
    assert (answer.code, answer.out.splitlines()[-1]) == (code, last)


def test_probe_describes_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    for name, value in (("is_available", False), ("device_count", 2), ("init", None)):
        monkeypatch.setattr(torch.cuda, name, Mock(return_value=value))
    monkeypatch.setattr(torch.cuda, "get_device_name", "AB".__getitem__)
    for name, value in (("is_nccl_available", False), ("is_gloo_available", True)):
        monkeypatch.setattr(torch.distributed, name, Mock(return_value=value))
    expected = {
        "torch": torch.__version__, "torchvision": torchvision.__version__, "built_for_cuda": "13.0", "cuda": False,
        "devices": ["A", "B"], "nccl": False, "gloo": True, "sum": 2.0, "cuda_error": "",
        "weights_folder": torch.hub.get_dir(),
    }  # fmt: skip
    assert probe() == expected
    monkeypatch.setattr(torch.cuda, "init", Mock(side_effect=RuntimeError("No driver.\nInstall it.")))
    assert probe() == expected | {"cuda_error": "No driver."}
    monkeypatch.setattr(torch, "ones", Mock(side_effect=ValueError("no")))
    facts = probe()
    assert (facts["error"], facts["gloo"]) == ("ValueError: no", True)
    assert not {"sum", "weights_folder"} & facts.keys()


def test_doctor_writes_a_report_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    replace_machine_facts(monkeypatch)
    target = tmp_path / "report.zip"
    answers = [run_in_this_process("doctor", "--report", str(target)) for _ in range(2)]
    assert [answer.code for answer in answers] == [0, 2]
    assert answers[0].out.startswith(f"Wrote {target}: doctor.txt")
    assert str(target) in answers[1].err
    with zipfile.ZipFile(target) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("doctor.txt"))
        text = archive.read(name).decode()
    assert text.startswith("ok    Python: 3.13.9 on Linux-6.8, 96 cores\n")
    assert text.endswith("\nTraining will not work; see BAD above.\n")


PROBED = {"sum": 4.0, "gloo": True, "nccl": False, "built_for_cuda": "13.0", "cuda": False, "devices": []}


@pytest.mark.parametrize(
    ("facts", "grades"),
    [
        ({"error": "PyTorch crashed (exit code -11)."}, {"PyTorch": "broken", "Pretrained weights": "limited"}),
        (PROBED, {"PyTorch": "fine", "CUDA": "limited", "nccl": "limited", "Pretrained weights": "limited"}),
        (
            PROBED | {"cuda": True, "devices": ["NVIDIA H200"], "nccl": True, "weights_folder": "hub"},
            {"PyTorch": "fine", "CUDA": "fine", "Pretrained weights": "fine"},
        ),
        ({"sum": 4.0}, {"PyTorch": "fine", "CUDA": "limited", "Pretrained weights": "limited"}),
    ],
    ids=["crash", "no GPU", "GPU and weights", "no CUDA"],
)
def test_doctor_grades_pytorch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, facts: dict[str, object], grades: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hub/checkpoints").mkdir(parents=True)
    for name in ("b.pth", "a.pth", "a.txt"):
        (tmp_path / "hub/checkpoints" / name).touch()
    found = {finding.topic: finding for finding in doctor.check_pytorch(facts)}
    assert {topic: finding.grade for topic, finding in found.items()} == grades
    assert ("cached: a.pth, b.pth" in found["Pretrained weights"].text) == (grades["Pretrained weights"] == "fine")


def test_main_ignores_a_closed_pipe() -> None:
    with subprocess.Popen(command("catalogue", "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize(("facts", "grade"), [({}, "broken"), ({"sum": 2.0}, "limited")])
def test_error_of_pytorch_is_worse_if_the_cpu_fails(facts: dict[str, object], grade: str) -> None:
    first = next(iter(doctor.check_pytorch(facts | {"error": "It crashed."})))
    assert (first.topic, first.grade, first.text) == ("PyTorch", grade, "It crashed.")
