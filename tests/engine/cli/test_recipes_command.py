"""``footplate recipes``, and recipes in ``footplate train``."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from engine.cli.main import create_parser, main
from engine.cli.train import validate
from engine.contract.command import command_arguments
from engine.contract.job import Job, save_job
from engine.contract.problems import Problem, errors
from engine.contract.recipes import SETTABLE
from tests.engine.supervisor.supervised import make_images
from tests.support.outlined import make_outlined

pytestmark = pytest.mark.usefixtures("cached_children")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("images"))


@pytest.fixture
def custom_recipe(separate_home: Path) -> Path:
    """Save the custom recipe "mine", and return its file."""
    path = separate_home / "recipes" / "mine.toml"
    path.parent.mkdir(parents=True)
    path.write_text('title = "My own"\nabout = "Short."\n[set]\nepochs = 3\nmixup = 0.3\n')
    return path


def validate_arguments(*arguments: str) -> tuple[Job | None, list[Problem]]:
    options, options.unknown = create_parser().parse_known_args(["train", *arguments])
    return validate(options)


def job_of(*arguments: str) -> Job:
    job, found = validate_arguments(*arguments)
    assert errors(found) == []
    assert job is not None
    return job


def test_train_chooses_the_fitting_recipe(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job, found = validate_arguments(str(images))
    assert job is not None
    lite = "timm:tf_efficientnet_lite0"
    assert (job.recipe, job.model.name, job.model.pretrained, job.optimizer.name) == ("fine-tune", lite, True, "adamw")
    # The dataset has 48 small images, that is, 15 epochs of two steps: a short average and no frozen epoch.
    assert (job.training.epochs, job.training.ema_decay, job.model.freeze_epochs) == (15, 0.9, 0)
    assert found == []
    assert "Recipe: Fine-tune. Choose another with --recipe.\n" in capsys.readouterr().err


def test_train_without_weights_uses_from_scratch(tmp_path: Path) -> None:
    job = job_of(
        str(make_outlined(tmp_path / "discs", {"train": 6, "val": 3})),
        "--task",
        "detection",
        "--encoder",
        "resnext101_32x32d",
    )
    assert (job.recipe, job.model.pretrained, job.optimizer.learning_rate, job.training.clip_norm) == (
        "from-scratch",
        False,
        7e-4,
        10,
    )


def test_train_flags_override_the_recipe(images: Path) -> None:
    job = job_of(str(images), "--model", "mnist_cnn", "--batch-size", "64", "--clip-norm", "", "--nesterov")
    assert (job.recipe, job.training.batch_size, job.training.clip_norm, job.optimizer.learning_rate) == (
        "from-scratch",
        64,
        None,
        0.025,
    )
    job = job_of(str(images), "--no-pretrained")
    assert (job.recipe, job.model.pretrained, job.optimizer.name) == ("from-scratch", False, "sgd")


def test_recipe_is_found_by_name_title_or_file(
    images: Path,
    custom_recipe: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = (str(images), "--model", "mnist_cnn", "--recipe")
    plain = Job.from_fields(dataset=str(images), model="mnist_cnn", recipe="plain")
    assert job_of(*arguments, "plain") == plain
    assert job_of(*arguments, "") == plain.with_fields(recipe="")
    changed = plain.with_fields(recipe="mine", epochs=3, mixup=0.3)
    assert job_of(*arguments, "mine") == job_of(*arguments, "my own") == changed
    other = custom_recipe.rename(tmp_path / "theirs.toml")
    monkeypatch.chdir(tmp_path)
    assert job_of(*arguments, "theirs.toml") == changed.with_fields(recipe=str(other))
    assert "Recipe:" not in capsys.readouterr().err


def test_recipe_flag_changes_a_job_file(images: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(f'recipe = "fine-tune"\ndata.dataset = "{images}"\nmodel.name = "mnist_cnn"\ntraining.epochs = 2\n')
    as_it_is = Job.from_fields(dataset=str(images), model="mnist_cnn", recipe="fine-tune", epochs=2)
    assert job_of("--job", str(file)) == as_it_is
    asked = job_of("--job", str(file), "--recipe", "pytorch-ddp-tutorial")
    assert (asked.recipe, asked.training.epochs, asked.optimizer.learning_rate) == ("pytorch-ddp-tutorial", 2, 0.001)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--recipe", "finetune"), "There is no recipe “finetune”. Did you mean “fine-tune”?"),
        (("--recipe", "timm-a1", "--task", "multilabel"), "not a recipe for the task multilabel. Choose fine-tune,"),
        (("--recipe", "/nowhere.toml"), "/nowhere.toml can't be read"),
        (("--recipe", "torn"), "torn.toml: “epoch” is not known."),
    ],
)
def test_train_refuses_unusable_recipes(
    images: Path, separate_home: Path, arguments: tuple[str, ...], expected: str
) -> None:
    folder = separate_home / "recipes"
    folder.mkdir(parents=True)
    (folder / "torn.toml").write_text('title = "Torn"\nabout = "No."\nepoch = 3\n')
    _job, found = validate_arguments(str(images), "--epochs", "0", *arguments)
    attached = {problem.field: str(problem) for problem in errors(found)}
    assert expected in attached["recipe"]
    assert "epochs" in attached  # reports all other problems at the same time


@pytest.mark.parametrize("recipe", ["", "plain", "fine-tune", "timm-a1", "gone"])
def test_command_arguments_reproduce_the_job(images: Path, recipe: str) -> None:
    job = Job.from_fields(dataset=str(images), model="resnet18", epochs=7, learning_rate=0.3, recipe=recipe)
    restored = job_of(*command_arguments(job)[1:])
    assert restored == job.with_fields(recipe="" if recipe == "gone" else recipe)


def test_recipes_show_prints_the_file(custom_recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "show", "mine"]) == 0
    assert capsys.readouterr().out == f"# {custom_recipe}\n{custom_recipe.read_text()}"
    assert main(["recipes", "show", "Fine-tune"]) == 0
    assert "fastai" in capsys.readouterr().out
    assert main(["recipes", "show", "fine-tun"]) == 2
    assert "Did you mean “fine-tune”?" in capsys.readouterr().err


def test_train_help_names_recipe_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    expected = " ".join(capsys.readouterr().out.split())
    assert expected.count("Default: the recipe's") == len(
        [name for name in SETTABLE if not isinstance(Job().value(name), bool)]
    )
    assert "Default: the one that fits; none with --job." in expected
    assert "Only with --optimizer sgd. Only with --momentum." in expected
    assert "Only with --warmup-epochs or --warmup-steps. Default: the recipe's, else 0.01." in expected


def test_recipe_values_are_stored_in_the_job(images: Path, tmp_path: Path) -> None:
    job = job_of(str(images))
    file = tmp_path / "job.toml"
    save_job(job, file)
    assert job_of(*shlex.split(f"--job {shlex.quote(str(file))}")) == job
