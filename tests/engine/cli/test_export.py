"""``footplate export``: contents, privacy and failures."""

from __future__ import annotations

import os
import sys
import tracemalloc
import zipfile
from pathlib import Path
from unittest.mock import Mock

import pytest

from engine.cli import doctor
from engine.contract.devices import CPU, DeviceSample
from engine.contract.events import ENCODE, AnyEvent, DevicesSampled, LogLine, RunFinished, RunStarted, StepMetrics
from engine.contract.events import Validation as Validated
from engine.contract.job import Job
from engine.runs.export import ExportRefused, export_folder, export_zip, replace_home
from engine.runs.folder import RunFolder, SupervisorFile, create_run
from tests.engine.cli.terminal import footplate, run_in_this_process
from tests.support.limits import limit_file_size

TEXTS = {"doctor.txt": "ok    Python"}


@pytest.fixture
def user_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "users" / "ann"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def run(user_home: Path) -> RunFolder:
    """Create a run with every file that a run folder can contain, and with files that must not be exported."""
    job = Job.from_fields(dataset=str(user_home / "images"), model="mnist_cnn", name="first try")
    run_folder = create_run(job)
    events: tuple[AnyEvent, ...] = (
        RunStarted(
            run_id=run_folder.run_id, job=job, devices=(), world_size=1, environment={"torch": "2.15"}, supervisor_pid=1
        ),
        LogLine(text=f"Reading {user_home}/images"),
        StepMetrics(
            epoch=1,
            step=1,
            loss=0.5,
            learning_rate=0.1,
            images_per_second=100.0,
            data_wait_s=0.0,
            compute_s=0.1,
            losses={"box": 0.25},
        ),
        DevicesSampled(
            samples=tuple(
                DeviceSample(device=device, utilization_percent=90.0 - n) for n, device in enumerate((CPU, "GPU-1"))
            )
        ),
        StepMetrics(
            epoch=1, step=3, loss=0.0, learning_rate=0.1, images_per_second=100.0, data_wait_s=0.0, compute_s=0.1
        ),
        Validated(epoch=1, step=2, measures={"loss": 0.4, "top1": 0.75}, images=4, seconds=0.1),
        RunFinished(outcome="completed"),
    )
    lines = []
    for n, event in enumerate(events, 1):
        event.n, event.time = n, 1.8e9 + n
        lines.append(ENCODE.encode(event) + b"\n")
    run_folder.events_file.write_bytes(b"".join(lines))
    run_folder.write_supervisor(SupervisorFile(pid=1, start_time=1.0, endpoint="tcp:5000:secret-token"))
    beginning = "x" * ((1 << 20) - 9)  # the path is at the end of a block of 1 MiB
    run_folder.worker_log(0).write_text(f'{beginning}  File "{user_home}/model.py", line 3\n')
    (run_folder.path / "supervisor.log").write_text("")
    (run_folder.path / "notes.json").write_text('{"text":"why I tried it"}')
    (run_folder.path / "image.png").write_bytes(b"\x89PNG")
    (run_folder.path / "elsewhere.log").symlink_to("/etc/hostname")
    (run_folder.checkpoints / "last.pt").write_bytes(b"weights" * 1000)
    (run_folder.checkpoints / "linked.pt").symlink_to("/etc/hostname")
    return run_folder


EXPORTED = ["doctor.txt", "events.jsonl", "job.toml", "notes.json", "supervisor.log", "worker-0.log"]


def test_export_folder_contains_nothing_private(run: RunFolder, user_home: Path, tmp_path: Path) -> None:
    target = tmp_path / "report"
    assert export_folder(run, target, TEXTS) == EXPORTED
    assert sorted(path.name for path in target.iterdir()) == EXPORTED
    together = b"".join(path.read_bytes() for path in target.iterdir())
    assert str(user_home).encode() not in together
    assert b"secret-token" not in together
    assert 'File "~/model.py"' in (target / "worker-0.log").read_text()
    assert 'dataset = "~/images"' in (target / "job.toml").read_text()
    assert [event.n for event in RunFolder(target).events()] == list(range(1, 8))


def test_export_zip_contains_one_folder(run: RunFolder, user_home: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.zip"
    assert export_zip(run, target, TEXTS) == EXPORTED
    with zipfile.ZipFile(target) as archive:
        assert sorted(archive.namelist()) == [f"{run.run_id}/{name}" for name in EXPORTED]
        assert all(str(user_home).encode() not in archive.read(name) for name in archive.namelist())


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_export_includes_texts_and_checkpoints(run: RunFolder, user_home: Path, tmp_path: Path, kind: str) -> None:
    target, texts = tmp_path / "report", {"doctor.txt": f"ok    Runs: {user_home}/.footplate/runs"}
    export = export_folder if kind == "folder" else export_zip
    names = export(run, target, texts, checkpoints=True)
    assert names == sorted([*EXPORTED, "checkpoints/last.pt"])
    if kind == "folder":
        exported = {name: (target / name).read_bytes() for name in names}
    else:
        with zipfile.ZipFile(target) as archive:
            exported = {name: archive.read(f"{run.run_id}/{name}") for name in names}
            stored = [info.filename for info in archive.infolist() if info.compress_type == zipfile.ZIP_STORED]
        assert stored == [f"{run.run_id}/checkpoints/last.pt"]
    assert exported["doctor.txt"] == b"ok    Runs: ~/.footplate/runs"
    assert exported["checkpoints/last.pt"] == (run.checkpoints / "last.pt").read_bytes()


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("{home}/images", "~/images"),
        ("at {home}", "at ~"),
        ('"file://{home}/a"', '"file://~/a"'),
        ("{home}a/images", "{home}a/images"),
        ("{home}.old/images", "{home}.old/images"),
        ("/backup{home}/images", "/backup{home}/images"),
    ],
)
def test_without_home_shortens_only_paths_in_it(user_home: Path, text: str, written: str) -> None:
    shortened = replace_home(text.format(home=user_home).encode()).decode()
    assert shortened == written.format(home=user_home)


def test_export_of_a_log_without_lines_needs_little_memory(run: RunFolder, tmp_path: Path) -> None:
    """Use a line of 96 MiB, which a log contains only if it is damaged or forged."""
    os.truncate(run.events_file, 96 << 20)
    tracemalloc.start()
    export_folder(run, tmp_path / "out", TEXTS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 << 20


@pytest.mark.parametrize("export", [export_folder, export_zip])
def test_export_refuses_existing_targets(run: RunFolder, tmp_path: Path, export: type) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    with pytest.raises(ExportRefused, match="Choose another name"):
        export(run, taken, TEXTS)
    assert taken.read_text() == "mine"


@pytest.mark.parametrize("export", [export_folder, export_zip])
def test_export_leaves_nothing_after_a_failure(run: RunFolder, tmp_path: Path, export: type) -> None:
    run.worker_log(1).mkdir()
    unreadable = run.checkpoints / "best.pt"
    unreadable.symlink_to(tmp_path / "nowhere")  # a broken link to a checkpoint is skipped
    before = set(tmp_path.iterdir())
    with pytest.raises(ExportRefused, match="Choose another folder"):
        export(run, tmp_path / "missing" / "report", TEXTS, checkpoints=True)
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("export", [export_folder, export_zip])
def test_export_to_a_full_disk_leaves_nothing(run: RunFolder, tmp_path: Path, export: type) -> None:
    before = set(tmp_path.iterdir())
    with limit_file_size(2000), pytest.raises(ExportRefused):
        export(run, tmp_path / "report", TEXTS, checkpoints=True)
    assert set(tmp_path.iterdir()) == before


def test_export_zip_replaces_on_request(run: RunFolder, tmp_path: Path) -> None:
    taken = tmp_path / "report.zip"
    taken.write_text("before")
    assert export_zip(run, taken, {}, replace=True)
    assert zipfile.is_zipfile(taken)
    with pytest.raises(ExportRefused, match="already exists"):
        export_zip(run, run.path, {}, replace=True)


@pytest.mark.long
def test_export_writes_a_zip_with_doctors_findings(run: RunFolder, tmp_path: Path) -> None:
    target = tmp_path / "report.zip"
    answer = footplate("export", "first try", "--zip", str(target))
    assert answer.code == 0, answer.err
    assert str(target) in answer.out
    assert "events.jsonl" in answer.out
    with zipfile.ZipFile(target) as archive:
        assert b"PyTorch: computes on the CPU" in archive.read(f"{run.run_id}/doctor.txt")
    again = footplate("export", "last", "--zip", str(target))
    assert again.code == 2
    assert "already exists" in again.err


def test_export_refuses_unknown_runs() -> None:
    answer = run_in_this_process("export", "nothing")
    assert answer.code == 2
    assert "no run “nothing”" in answer.err


def test_export_reports_a_missing_tensorboard(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    answer = run_in_this_process("export", run.run_id, "--tensorboard", str(tmp_path / "board"))
    assert answer.code == 2
    assert "pip install tensorboard" in answer.err
    assert not (tmp_path / "board").exists()


def test_export_command_follows_its_flags(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examine = Mock(return_value="ok")
    monkeypatch.setattr(doctor, "capture_output", examine)
    for flags, code, count in (
        ("", 0, 1), ("", 2, 1), ("--zip a.zip", 0, 2), ("--zip a.zip --folder b", 2, 2), ("--folder b --checkpoints", 0, 3),
        ("--folder b", 2, 3), ("--zip a.zip --replace --checkpoints", 0, 4),
    ):  # fmt: skip
        answer = run_in_this_process("export", run.run_id, *flags.split())
        assert (answer.code, examine.call_count) == (code, count), flags
        assert ("checkpoints/last.pt" in answer.out) == ("--checkpoints" in flags)


def test_export_writes_tensorboard_scalars(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.chdir(tmp_path)
    answer = run_in_this_process("export", run.run_id, "--tensorboard", "board")
    written = f"board/{run.run_id}"
    expected = f"Wrote TensorBoard's event files to {written}. To view them: tensorboard --logdir board\n"
    assert (answer.code, answer.out) == (0, expected), answer.err
    assert f"{written} already exists" in run_in_this_process("export", run.run_id, "--tensorboard", "board").err
    (tmp_path / "file").touch()
    assert "can't be created" in run_in_this_process("export", run.run_id, "--tensorboard", "file").err
    read = EventAccumulator(str(tmp_path / "board" / run.run_id))
    read.Reload()
    tags = ("train/loss", "validation/top1", f"device/{CPU}/utilization_percent", "device/GPU-1/utilization_percent")
    scalars = [[(each.step, each.value, each.wall_time - 1.8e9) for each in read.Scalars(tag)] for tag in tags]
    assert scalars == [[(1, 0.5, 3), (3, 0.0, 5)], [(2, 0.75, 6)], [(1, 90.0, 4)], [(1, 89.0, 4)]]
    assert "train/accuracy" not in read.Tags()["scalars"]
    assert [(each.step, each.value) for each in read.Scalars("train/losses/box")] == [(1, 0.25)]
    assert read.Tags()["tensors"] == ["job/text_summary"]
    assert os.listdir(tmp_path / "board") == [run.run_id]


def test_export_includes_evaluations_without_samples(run: RunFolder, user_home: Path, tmp_path: Path) -> None:
    evaluation = run.path / "evaluations" / "20261124-130000-val"
    evaluation.mkdir(parents=True)
    (evaluation / "evaluation.json").write_text(f'{{"dataset": "{user_home}/images"}}')
    (evaluation / "samples.msgpack").write_bytes(b"paths")
    (run.path / "evaluations" / "elsewhere").symlink_to(evaluation)
    name = "evaluations/20261124-130000-val/evaluation.json"
    target = tmp_path / "exported"
    assert sorted(set(export_folder(run, target, TEXTS)) - set(EXPORTED)) == [name]
    assert (target / name).read_text() == '{"dataset": "~/images"}'
