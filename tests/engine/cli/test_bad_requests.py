"""Bad requests: exit code 2, all of what is wrong at once, each with its flag and a remedy."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from engine.cli.main import main
from engine.runs.folder import list_runs
from tests.engine.cli.terminal import footplate
from tests.engine.supervisor.supervised import make_images

Refused = Callable[..., str]


pytestmark = pytest.mark.usefixtures("asked_once")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("images"), 4)


@pytest.fixture
def refused(capfd: pytest.CaptureFixture[str]) -> Refused:
    """What the command and its children say of a bad request to train, within this process; checks that it is one and
    that nothing was started.
    """

    def ask(*words: str) -> str:
        try:
            code = main(["train", *words])
        except SystemExit as end:
            code = end.code
        said = capfd.readouterr()
        assert code == 2, said
        assert list_runs() == []
        assert "Traceback" not in said.err
        return said.err

    return ask


def test_that_everything_wrong_is_told_at_once(refused: Refused, tmp_path: Path) -> None:
    said = refused(
        str(tmp_path / "nowhere"), "--epochs", "many", "--batch-size", "0", "--optmizer", "adam", "--model", "resnet81"
    )
    assert "DATASET: There is no folder" in said
    assert "--epochs: Epochs: 'many' is not a whole number" in said
    assert "--batch-size:" in said
    assert "Did you mean --optimizer?" in said
    assert "--model: There is no model “resnet81”" in said
    assert "is an extra argument" not in said


def test_that_all_that_a_strategy_cannot_do_is_told_at_once(refused: Refused, images: Path) -> None:
    said = refused(
        *(str(images), "--model", "resnet18", "--strategy", "ddp_pipeline", "--devices", ",".join(["cpu"] * 6)),
        *("--replicas", "4", "--accumulation", "5", "--cuts", "maxpol,relu", "--pipeline-schedule", "zbv"),
        *("--activation-checkpointing", "--resume-from", "/nowhere/last.pt", "--precision", "fp16"),
    )
    assert "--replicas: 6 devices can't be divided among 4 equal replicas.\n  Set 2 or 3 replicas" in said
    assert "into equal parts, which 4 replicas with 5 parts each do not allow" in said
    assert "--cuts: ResNet-18 can't be cut at “maxpol”.\n  Did you mean “maxpool”?" in said
    assert "--activation-checkpointing: A zero-bubble schedule" in said
    assert "--resume-from: There is no file /nowhere/last.pt" in said
    assert "--precision: fp16 needs a GPU" in said


@pytest.mark.parametrize(
    ("words", "expected"),
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
        (("IMAGES", "--strategy", "ddp", "--devices", "GPU-x,GPU-x"), ["--devices: GPU-x is named more", "NCCL"]),
        (("IMAGES", "--clip-norm", "0"), ["--clip-norm: Clip gradients: 0.0 is out of range", "above 0"]),
        (("IMAGES", "--ema-decay", "1"), ["--ema-decay: Weight average: 1.0 is out of range", "below 1"]),
        (("IMAGES", "--replicas", "1"), ["--replicas: Replicas: 1 is out of range", "from 2"]),
        (("IMAGES", "--model", "/nowhere/net.py"), ["--model: The model file"]),
        (("IMAGES", "--job", "/nowhere.toml"), ["--job:", "can't be read"]),
    ],
)
def test_that_a_bad_value_is_refused_at_its_flag(
    refused: Refused, images: Path, words: tuple[str, ...], expected: list[str]
) -> None:
    said = refused(*(str(images) if word == "IMAGES" else word for word in words))
    assert all(text in said for text in expected), said


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
def test_that_a_bad_job_file_is_refused_at_its_key(
    refused: Refused, images: Path, tmp_path: Path, text: str, expected: list[str]
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(text + "\n")
    said = refused(str(images), "--job", str(file))
    assert all(part in said for part in expected), said


def test_that_a_model_file_runs_only_when_it_is_trusted(refused: Refused, images: Path, tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    assert "--trust-model-file" in refused(str(images), "--model", str(file))
    assert not (tmp_path / "ran").exists()


def folder_of(path: Path, *names: str) -> Path:
    for name in names:
        (path / name).mkdir(parents=True)
    return path


def test_that_folders_without_a_dataset_are_refused(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    assert "is a file, not a folder" in refused(str(tmp_path / "file"))
    assert "DATASET:" in refused(str(folder_of(tmp_path / "empty")))
    assert "DATASET:" in refused(str(folder_of(tmp_path / "bare", "train/a", "train/b", "val/a")))
    one = folder_of(tmp_path / "one", "train/only")
    Image.new("L", (8, 8)).save(one / "train/only/1.png")
    assert "DATASET:" in refused(str(one))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere file names are always Unicode")
def test_that_a_folder_whose_name_is_not_utf8_is_refused_with_the_remedy(
    refused: Refused, images: Path, tmp_path: Path
) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/odd-\xff")
    shutil.copytree(images, odd)
    said = refused(odd)
    assert "DATASET:" in said
    assert "symbolic link" in said


def test_that_a_class_that_only_validation_has_is_refused(refused: Refused, images: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(images, tmp_path / "copy")
    (folder / "val" / "odd").mkdir()
    Image.new("L", (28, 28)).save(folder / "val" / "odd" / "1.png")
    said = refused(str(folder))
    assert "DATASET:" in said
    assert "odd" in said


def test_that_runs_that_cannot_be_written_are_told_with_the_remedy(images: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where the folder should be")
    answer = footplate("train", str(images), "--model", "mnist_cnn", FOOTPLATE_HOME=str(tmp_path / "taken"))
    assert answer.code == 2
    assert "can't be written" in answer.err
    assert "FOOTPLATE_HOME" in answer.err


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_that_a_missing_permission_is_told_with_the_remedy(images: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    answer = footplate("train", str(images), "--model", "mnist_cnn", FOOTPLATE_HOME=str(locked))
    assert answer.code == 2
    assert "FOOTPLATE_HOME" in answer.err


def test_that_an_unknown_run_is_refused_with_a_hint() -> None:
    for verb in ("attach", "stop"):
        answer = footplate(verb, "nothing")
        assert answer.code == 2
        assert "there is no run “nothing”" in answer.err
