"""Example plug-in that is installed with pip. A run uses its dataset format, model, option and metric."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PIL import Image

import resources
from engine.contract.catalogue import Catalogue
from engine.contract.events import Validation
from engine.contract.job import load_job
from engine.runs.index import find_run
from tests.engine.cli.terminal import ROOT, Answer, footplate
from tests.support.installed import install

EXAMPLE = Path(resources.__path__[0]) / "examples/footplate-example-plugin"
BROKEN = {
    "footplate.models": {"broken": "broken_package:MODEL", "resnet18": "broken_package:MODEL"},
    "footplate.formats": {"wrong": "json:loads"},
}


CUSTOM_PLAN = """
from engine.contract.catalogue import TaskEntry
from engine.contract.job import Job
from engine.contract.options import list_options, option, options_of
from engine.strategies.single import SingleDevice
from engine.tasks.classification.task import Classification, ClassificationObjective
from typing import Annotated
import msgspec


class Options(msgspec.Struct, frozen=True):
    sharpness: Annotated[float, option("Sharpness", "What the loss is multiplied by.", ge=0.5, le=4, resume=True)] = 1.0


class Sharp(Classification):
    entry = msgspec.structs.replace(
        Classification.entry,
        id="sharp",
        title="Sharp classification",
        annotations=("classes",),
        models="classification",
        options=list_options(Options),
    )

    def list_models(self):
        return ()

    def create_objective(self, job, lesson):
        made = super().create_objective(job, lesson)
        plain, times = made.loss, options_of(job, Options).sharpness
        made.loss = lambda outputs, targets: times * plain(outputs, targets)
        return made


class Slow(SingleDevice):
    entry = msgspec.structs.replace(SingleDevice.entry, id="slow", title="Slow", summary="As one device, but slow.")
"""
PLAN = {"footplate.tasks": {"sharp": "own_plan:Sharp"}, "footplate.strategies": {"slow": "own_plan:Slow"}}
DOCTOR = """
from engine.cli import doctor

for finding in doctor.check_plugins():
    print(finding.grade, finding.text)
"""
LOADED = """
from engine.inference import Run

model = Run("last").load().module
print(type(model).__name__, sum(parameter.numel() for parameter in model.parameters()))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the example plug-in is installed, and another package whose plug-ins are broken."""
    folder, source = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("source") / "plugin"
    shutil.copytree(EXAMPLE, source)  # building creates files in the source folder
    install_here = ("--no-deps", "--no-build-isolation", "--no-index", "--target", str(folder), str(source))
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *install_here],
        check=True,
        capture_output=True,
        timeout=120,
    )
    install(folder, "broken-package", BROKEN, broken_package="import no_such_module")
    install(folder, "own-plan", PLAN, own_plan=CUSTOM_PLAN)
    return folder


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """Write a folder with 60 images and a list of their classes, red and blue. Return the dataset folder."""
    random = np.random.default_rng(0)
    (tmp_path / "listed/images").mkdir(parents=True)
    lines = []
    for number in range(60):
        pixels = random.integers(0, 60, (32, 32, 3), dtype=np.uint8)
        pixels[..., 2 * (number % 2)] += 150
        Image.fromarray(pixels).save(tmp_path / f"listed/images/{number}.png")
        lines.append(f"images/{number}.png {('red', 'blue')[number % 2]}\n")
    (tmp_path / "listed/train.list").write_text("".join(lines))
    return tmp_path / "listed"


@pytest.fixture(autouse=True)
def with_plugins(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{site}")


def train(folder: Path, *arguments: str) -> Answer:
    return footplate("train", str(folder), "--model", "narrow_net", "--start", "at_once", "--recipe", "", *arguments)


@pytest.mark.long
def test_training_uses_all_parts_of_a_plugin(listed: Path) -> None:
    small = ("--epochs", "2", "--batch-size", "8", "--option", "width=4", "--best-by", "calibration_error")
    answer = train(listed, *small)
    assert answer.code == 0, answer.err
    assert "lists of images, 2 classes, color; 48 train, 12 val" in answer.err
    run = find_run("last")
    assert run is not None
    job, wrong = load_job(run.job_file)
    assert job is not None, wrong
    assert job.options == {"width": 4}
    measured = [event for event in run.events() if isinstance(event, Validation)]
    assert len(measured) == 2
    assert all(0 < event.measures["calibration_error"] < 1 for event in measured)
    assert "broken" not in (run.path / "events.jsonl").read_text()

    refused = footplate("resume", "last", "--epochs", "3", "--option", "width=8", "--option", "stages=1")
    assert refused.code == 2
    assert "--option stages: Stages can't be changed when resuming" in refused.err
    assert "--option width: Width can't be changed when resuming" in refused.err
    resumed = footplate("resume", "last", "--epochs", "3", "--option", "width=4")
    assert resumed.code == 0, resumed.err
    assert "epoch 3: top1" in resumed.out


@pytest.mark.long
def test_option_problems_are_reported_together(listed: Path) -> None:
    answer = train(listed, "--option", "width=0", "--option", "widht=4", "--option", "stages=many", "--option", "x")
    assert answer.code == 2
    assert "--option width: Width: 0 is out of range.\n  Give a value from 1 to 256." in answer.err
    assert "has an option “widht”.\n  Available: width, stages." in answer.err
    assert "--option stages: Stages: 'many' is not a whole number." in answer.err
    assert "--option: “x” has no value.\n  Write --option x=VALUE." in answer.err


def test_unusable_plugins_are_named() -> None:
    result = subprocess.run([sys.executable, "-c", DOCTOR], capture_output=True, text=True, timeout=120, check=False)
    fine, *limited = result.stdout.splitlines()
    assert fine == "fine sharp, narrow_net, slow, lists, calibration_error", result.stderr
    assert len(limited) == 3
    assert all("Skipping the plug-in “" in line and "Correct, update or uninstall" in line for line in limited)
    answer = footplate("catalogue", "--json")
    assert answer.code == 0, answer.err
    catalogue = msgspec.json.decode(answer.out, type=Catalogue)
    model = catalogue.model("narrow_net")
    assert model is not None
    assert (model.package, [option.name for option in model.options]) == (
        "footplate-example-plugin",
        ["width", "stages"],
    )
    classification = catalogue.task("classification")
    assert classification is not None
    assert classification.annotations == ("classes",)
    assert classification.metrics[-1].title == "Calibration error"
    assert catalogue.model("resnet18") is not None
    messages = {problem.field + ": " + problem.message for problem in catalogue.problems}
    left_out = "of the package broken-package"
    assert messages == {
        f"model: Skipping the plug-in “broken” (footplate.models) {left_out}: ModuleNotFoundError: No module named 'no_such_module'.",
        f"model: Skipping the plug-in “resnet18” (footplate.models) {left_out}: Footplate already has one of that name.",
        f"dataset: Skipping the plug-in “wrong” (footplate.formats) {left_out}: it is a function, not a Format of "
        "engine.data.formats.format.",
    }
    assert all(problem.severity == "warning" and "broken-package" in problem.remedy for problem in catalogue.problems)


@pytest.mark.long
def test_training_uses_a_plugin_task_and_strategy(listed: Path) -> None:
    arguments = ("--task", "sharp", "--strategy", "slow", "--epochs", "1", "--batch-size", "8")
    wrong = train(listed, *arguments, "--option", "sharpness=9")
    assert "--option sharpness: Sharpness: 9.0 is out of range.\n  Give a value from 0.5 to 4." in wrong.err
    answer = train(listed, *arguments, "--option", "sharpness=2", "--option", "stages=2")
    assert answer.code == 0, answer.err
    run = find_run("last")
    assert run is not None
    job = run.job()
    assert job is not None
    assert (job.task, job.parallel.strategy, job.options) == ("sharp", "slow", {"sharpness": 2.0, "stages": 2})
    resumed = footplate("resume", "last", "--epochs", "2", "--option", "sharpness=3")
    assert resumed.code == 0, resumed.err
    job = run.job()
    assert job is not None
    assert job.options == {"sharpness": 3.0, "stages": 2}
    loaded = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=120, check=False)
    assert loaded.stdout.split() == ["Sequential", "1450"], loaded.stderr
