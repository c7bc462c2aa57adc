"""Invalid command lines: exit code 2, with all problems, the flags that cause them, and remedies."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from engine.cli.main import main
from engine.contract.job import Job
from engine.runs.folder import create_run, list_runs
from tests.engine.cli.terminal import footplate
from tests.engine.supervisor.supervised import make_images
from tests.support import boxed

Refused = Callable[..., str]


pytestmark = pytest.mark.usefixtures("cached_children")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("images"), 4)


@pytest.fixture
def refused(capfd: pytest.CaptureFixture[str]) -> Refused:
    """Return a function that runs an invalid `train` command and returns its standard error.

    It also checks the exit code, and that no run has been created.
    """

    def ask(*arguments: str) -> str:
        try:
            code = main(["train", *arguments])
        except SystemExit as end:
            code = end.code
        stderr = capfd.readouterr()
        assert code == 2, stderr
        assert list_runs() == []
        assert "Traceback" not in stderr.err
        return stderr.err

    return ask


def test_train_reports_all_problems_at_once(refused: Refused, tmp_path: Path) -> None:
    flags = "--epochs many --batch-size 0 --optmizer=stochastic_gradient_descent --bath-size 4 --model resnet81"
    stderr = refused(str(tmp_path / "nowhere"), *flags.split())
    assert "DATASET: There is no folder" in stderr
    assert "--epochs: Epochs: 'many' is not a whole number" in stderr
    assert "--batch-size:" in stderr
    assert "There is no flag --optmizer.\n  Did you mean --optimizer?" in stderr
    assert "Did you mean --batch-size?" in stderr
    assert "--model: There is no model “resnet81”" in stderr
    assert "is an extra argument" not in stderr


def test_train_reports_only_an_unknown_model(refused: Refused, tmp_path: Path) -> None:
    stderr = refused(str(boxed.yolo(tmp_path, boxed.SPLITS)), "--model", "yolo8")
    assert "--model: There is no model “yolo8”" in stderr
    assert "Class folders" not in stderr
    assert "images with boxes" not in stderr


def test_train_reports_all_strategy_problems(refused: Refused, images: Path) -> None:
    stderr = refused(
        *(str(images), "--model", "resnet18", "--strategy", "ddp_pipeline", "--devices", ",".join(["cpu"] * 6)),
        *("--replicas", "4", "--accumulation", "5", "--split-points", "maxpol,relu", "--pipeline-schedule", "zbv"),
        *("--activation-checkpointing", "--resume-from", "/nowhere/last.pt", "--precision", "fp16"),
    )
    assert "--replicas: 6 devices can't be divided among 4 equal replicas.\n  Set 2 or 3 replicas" in stderr
    assert "into equal parts, which 4 replicas with 5 parts each do not allow" in stderr
    assert "--split-points: ResNet-18 can't be split at “maxpol”.\n  Did you mean “maxpool”?" in stderr
    assert "--activation-checkpointing: A zero-bubble schedule" in stderr
    assert "--resume-from: There is no file /nowhere/last.pt" in stderr
    assert "--precision: fp16 needs a GPU" in stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), ["DATASET: No dataset folder is chosen."]),
        (("IMAGES", "--strategy", "ddp", "--devices", "cpu,cpu", "--batch-size", "1"), ["--batch-size:", "divided"]),
        (("IMAGES", "--strategy", "ddp"), ["--strategy:", "at least 2 devices"]),
        (("IMAGES", "--strategy", "dp", "--devices", "cpu,cpu"), ["--strategy:", "CUDA GPUs only"]),
        (
            ("IMAGES", "--model", "mnist_cnn", "--strategy", "pipeline", "--devices", ",".join(["cpu"] * 40)),
            ["stages"],
        ),
        (("IMAGES", "--precision", "fp61"), ["--precision:", "Did you mean “fp16”?"]),
        (("IMAGES", "--precision", "fp16"), ["--precision: fp16 needs a GPU"]),
        (("IMAGES", "--best-by", "top2"), ["--best-by:", "Did you mean"]),
        (("IMAGES", "--learning-rate", "nan"), ["--learning-rate:"]),
        (("IMAGES", "more"), ["“more” is an extra argument"]),
        (("IMAGES", "--weights-file", "/nowhere.pt"), ["--weights-file: There is no file"]),
        (("IMAGES", "--devices", "97"), ["--devices: CUDA finds no GPU 97"]),
        (("IMAGES", "--devices", "GPU-x"), ["--devices: There is no GPU GPU-x"]),
        (("IMAGES", "--devices", ""), ["--devices: No device is chosen."]),
        (
            ("IMAGES", "--strategy", "ddp", "--devices", "GPU-x,GPU-x"),
            ["--devices: GPU-x is listed more than once", "NCCL"],
        ),
        (("IMAGES", "--clip-norm", "0"), ["--clip-norm: Clip gradients: 0.0 is out of range", "above 0"]),
        (("IMAGES", "--ema-decay", "1"), ["--ema-decay: Weight average: 1.0 is out of range", "below 1"]),
        (("IMAGES", "--replicas", "1"), ["--replicas: Replicas: 1 is out of range", "from 2"]),
        (("IMAGES", "--model", "/nowhere/net.py"), ["--model: The model file"]),
        (("IMAGES", "--job", "/nowhere.toml"), ["--job:", "can't be read"]),
    ],
)
def test_train_refuses_bad_values(
    refused: Refused, images: Path, arguments: tuple[str, ...], expected: list[str]
) -> None:
    stderr = refused(*(str(images) if argument == "IMAGES" else argument for argument in arguments))
    assert all(text in stderr for text in expected), stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("training.epoch = 3", ["epoch:", "Did you mean “epochs”?"]),
        ("training.epochs = 'three'", ["--epochs:", "is not a whole number"]),
        ("version = 99", ["version:", "version 99", "Update Footplate"]),
        ("epochs = = 3", ["--job:", "not valid TOML"]),
        (f"epochs = {'[' * 5000}{']' * 5000}", ["--job:", "not valid TOML"]),
        (f"epochs = {'3' * 5000}", ["--job:", "not valid TOML"]),
        ("parallel.devices = 'cpu'", ["--devices:"]),
        ("parallel.devices = [0]", ["--devices:"]),
        ("model.name = 3\ntraining.epochs = 0", ["--model:", "--epochs:"]),
    ],
)
def test_train_refuses_bad_job_files(
    refused: Refused, images: Path, tmp_path: Path, text: str, expected: list[str]
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(text + "\n")
    stderr = refused(str(images), "--job", str(file))
    assert all(text_part in stderr for text_part in expected), stderr


def test_train_refuses_untrusted_model_files(refused: Refused, images: Path, tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    assert "--trust-model-file" in refused(str(images), "--model", str(file))
    assert not (tmp_path / "ran").exists()


def folder_of(path: Path, *names: str) -> Path:
    for name in names:
        (path / name).mkdir(parents=True)
    return path


def test_train_refuses_folders_without_dataset(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    assert "is a file, not a folder" in refused(str(tmp_path / "file"))
    assert "DATASET:" in refused(str(folder_of(tmp_path / "empty")))
    assert "DATASET:" in refused(str(folder_of(tmp_path / "bare", "train/a", "train/b", "val/a")))
    one = folder_of(tmp_path / "one", "train/only")
    Image.new("L", (8, 8)).save(one / "train/only/1.png")
    assert "DATASET:" in refused(str(one))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere file names are always Unicode")
def test_train_refuses_folder_names_outside_utf8(refused: Refused, images: Path, tmp_path: Path) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/odd-\xff")
    shutil.copytree(images, odd)
    stderr = refused(odd)
    assert "DATASET:" in stderr
    assert "symbolic link" in stderr


def test_train_refuses_classes_only_in_validation(refused: Refused, images: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(images, tmp_path / "copy")
    (folder / "val" / "odd").mkdir()
    Image.new("L", (28, 28)).save(folder / "val" / "odd" / "1.png")
    stderr = refused(str(folder))
    assert "DATASET:" in stderr
    assert "odd" in stderr


def test_train_reports_an_unusable_home(images: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where the folder should be")
    answer = footplate("train", str(images), "--model", "mnist_cnn", FOOTPLATE_HOME=str(tmp_path / "taken"))
    assert answer.code == 2
    assert "can't be written" in answer.err
    assert "FOOTPLATE_HOME" in answer.err


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_train_reports_a_missing_permission(images: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    answer = footplate("train", str(images), "--model", "mnist_cnn", FOOTPLATE_HOME=str(locked))
    assert answer.code == 2
    assert "FOOTPLATE_HOME" in answer.err


@pytest.mark.parametrize("verb", ["attach", "stop"])
def test_commands_refuse_unknown_runs(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "nothing"]) == 2
    assert "there is no run “nothing”. There are no runs yet." in capsys.readouterr().err
    for _ in range(4):
        create_run(Job())
    assert main([verb, "nothing"]) == 2
    newest = ", ".join(run.run_id for run in list_runs()[:3])
    assert f"there is no run “nothing”. The newest are {newest}. " in capsys.readouterr().err
