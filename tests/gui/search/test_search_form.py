"""Form for a hyperparameter search."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.contract.job import FIELDS, Field, Job, save_job
from engine.contract.problems import Problem
from engine.contract.search import FIXED, Budget, Choices, Range
from engine.system import paths
from gui.search.dimension_row import suggest_dimension
from gui.search.search_file import make_values, read_space
from gui.search.search_form import SearchForm
from gui.widgets.editors import ComboBox
from tests.support.made_searches import make_search_config

CHECKING = "Checking…"
"""Reason why the search can't be started while the form is validated."""
JOB = Job.from_fields(
    name="run 7",
    dataset=str(paths.sample_dataset()),
    model="mnist_cnn",
    image_size=28,
    batch_size=8,
    epochs=2,
    devices=("cpu", "cpu"),
)


@pytest.fixture
def form(styled: QApplication, qtbot: QtBot) -> Iterator[SearchForm]:
    created = SearchForm()
    qtbot.addWidget(created)
    created.set_job(JOB, [], ("cpu", "cpu"), {}, None)
    created.reset(())
    created.show()
    yield created
    created.close_work()


def wait_for_validation(form: SearchForm, qtbot: QtBot) -> SearchForm:
    qtbot.waitUntil(lambda: form.start.disabled_reason != CHECKING)
    return form


def read_offered_fields(form: SearchForm) -> set[str]:
    return {form.add.itemData(index) for index in range(1, form.add.count())}


def test_search_form_offers_searchable_fields(form: SearchForm, qtbot: QtBot) -> None:
    assert {"weight_decay", "batch_size", "optimizer", "augmentation", "momentum"} <= read_offered_fields(form)
    assert not read_offered_fields(form) & (FIXED | {"learning_rate", "encoder"})  # varied already, without effect
    form.dimensions["learning_rate"].remove.click()
    assert "learning_rate" in read_offered_fields(form)
    form.add.setCurrentIndex(form.add.findData("weight_decay"))
    form.add.activated.emit(form.add.currentIndex())
    qtbot.waitUntil(lambda: form.focusWidget() is form.dimensions["weight_decay"].scale.control)
    form.add.setCurrentIndex(form.add.findData("optimizer"))
    form.add.activated.emit(form.add.currentIndex())
    qtbot.waitUntil(lambda: form.focusWidget() is next(iter(form.dimensions["optimizer"].boxes.values())))
    form.reset(())
    assert list(form.dimensions) == ["weight_decay", "optimizer"]
    form.rows["against"].set_value("top5")
    form.set_job(JOB.with_fields(task="segmentation", model="unet"), [], ("cpu",), {}, None)
    assert ("encoder" in read_offered_fields(form), "weight_decay" in read_offered_fields(form)) == (True, False)
    goals = [form.rows[name].findChild(ComboBox) for name in ("goal", "against")]
    metrics = ["miou", "mean_f1", "pixel_accuracy", "loss", "seconds", "parameters"]
    assert [[box.itemData(row) for row in range(box.count())] for box in goals] == [metrics, ["", *metrics]]
    assert form.values()["goals"] == ["miou"]


def test_search_form_suggests_values_around_the_job(form: SearchForm) -> None:
    job = JOB.with_fields(epochs=1, accumulation=4000, layer_decay=0.999, strategy="fsdp", class_weights="balanced")
    form.set_job(job, [], ("cpu",), {}, None)
    suggested = {
        "learning_rate": {"low": 0.001, "high": 0.1, "log": True},
        "batch_size": {"low": 4, "high": 16},
        "epochs": {"low": 1, "high": 2},
        "accumulation": {"low": 2000, "high": 4096},
        "freeze_epochs": {"low": 0, "high": 10},
        "momentum": {"low": 0.72, "high": 0.99},
        "layer_decay": {"low": 0.7992, "high": 0.999},
        "label_smoothing": {"low": 0, "high": 0.2},
        "nesterov": [False, True],
        "class_weights": ["none", "balanced"],
        "strategy": ["fsdp"],
        "weights_file": ["none"],
    }
    for name in suggested:
        form.vary(name)
    assert form.values()["space"] == suggested


@pytest.mark.parametrize(
    ("kind", "value", "suggested"),
    [
        ("int", None, {"low": 64, "high": 128}),
        ("float", 80.0, {"low": 64, "high": 800, "log": True}),
        ("float", 800.0, {"low": 640, "high": 880}),
        ("float", 70.0, {"low": 64, "high": 700, "log": True}),
    ],
)
def test_suggested_range_is_within_the_limits(
    kind: Literal["int", "float"], value: float | None, suggested: dict[str, object]
) -> None:
    field = Field("points", "Points", "Number of points", "main", kind, None, optional=True, minimum=64, maximum=1000)
    assert suggest_dimension(field, value) == suggested


@pytest.mark.parametrize(
    ("model", "image_size", "sizes", "first_sizes"),
    [
        ("resnet18", None, {"low": 112, "high": 448}, {"low": 128, "high": 192, "step": 32}),
        ("inception_v3", 80, {"low": 75, "high": 160}, None),
        ("vit_h_14", None, {"low": 266, "high": 1036, "step": 14}, {"low": 266, "high": 504, "step": 14}),
        ("mine.py", None, {"low": 112, "high": 448}, {"low": 128, "high": 192, "step": 32}),
    ],
)
def test_search_form_suggests_image_sizes_of_the_model(
    form: SearchForm, model: str, image_size: int | None, sizes: dict[str, int], first_sizes: dict[str, int] | None
) -> None:
    form.set_job(JOB.with_fields(model=model, image_size=image_size), [], ("cpu",), {}, None)
    form.vary("image_size")
    form.vary("progressive_from")
    space = form.values()["space"]
    assert space["image_size"] == sizes
    assert first_sizes is None or space["progressive_from"] == first_sizes


@pytest.mark.parametrize(
    ("task", "model"), [("classification", "efficientnet_b0"), ("segmentation", "unet"), ("detection", "fasterrcnn")]
)
def test_search_form_suggests_valid_values_for_empty_fields(
    form: SearchForm, qtbot: QtBot, task: str, model: str
) -> None:
    form.set_job(JOB.with_fields(task=task, model=model, image_size=None), [], ("cpu",), {}, None)
    without_model = {"dropout", "stochastic_depth"} if task != "classification" else set()
    for name in read_offered_fields(form) - without_model:
        if FIELDS[name].kind in ("int", "float") and Job().value(name) is None:
            form.vary(name)
    assert {"image_size", "progressive_from", "clip_norm", "ema_decay", "patience"} <= set(form.dimensions)
    wait_for_validation(form, qtbot)
    assert [problem for problem in form.problems if problem.field.startswith("space.")] == []


@pytest.mark.parametrize(
    ("dimension", "visible"),
    [
        ({"low": 0.0001, "high": 0.123456, "step": 0.05}, {"low", "high", "step"}),
        ({"low": 0.25, "high": 0.5, "log": True}, {"low", "high"}),
        ({"low": 0, "high": 1}, {"low", "high", "step"}),
        ([0.123456, 2], {"listed"}),
    ],
)
def test_dimension_shows_its_editors_and_values(form: SearchForm, dimension: object, visible: set[str]) -> None:
    form.vary("weight_decay", {"low": 1, "high": 2, "step": 0.5})
    row = form.dimensions["weight_decay"]
    row.set_value(dimension)
    assert row.value() == dimension
    assert {name for name in ("low", "high", "step", "listed") if not getattr(row, name).isHidden()} == visible


def test_search_form_creates_search(form: SearchForm, qtbot: QtBot) -> None:
    form.vary("optimizer")
    wait_for_validation(form, qtbot)
    with qtbot.waitSignal(form.dimensions["optimizer"].edited):
        form.dimensions["optimizer"].boxes["lamb"].setChecked(False)
    assert form.start.disabled_reason == CHECKING
    assert form.add.itemData(1, Qt.ItemDataRole.ToolTipRole) == FIELDS[form.add.itemData(1)].help
    form.vary("batch_size")
    form.dimensions["batch_size"].scale.set_value("list")
    assert not form.dimensions["batch_size"].listed.isHidden()
    form.dimensions["batch_size"].listed.set_value("8, 16, ")
    form.rows["hours"].set_value(1.5)
    form.rows["against"].set_value("seconds")
    form.rows["sampler"].set_value("nsgaii")
    form.rows["pruner"].set_value("none")
    form.rows["confirm"].set_value(0)
    wait_for_validation(form, qtbot)
    assert form.problems == []
    assert "2 trials at once" in form.devices.text()
    form.rows["devices_per_trial"].set_value(2)
    with qtbot.waitSignal(form.start_requested) as requested:
        wait_for_validation(form, qtbot).start.trigger()
    assert "1 trial at once" in form.devices.text()
    search = requested.args[0]
    assert search.job.name == ""
    assert search.space["learning_rate"] == Range(low=0.001, high=0.1, log=True)
    assert "lamb" not in search.space["optimizer"].values
    assert search.space["batch_size"] == Choices(values=(8, 16))
    assert [goal.measure for goal in search.goals] == ["top1", "seconds"]
    assert (search.budget.trials, search.budget.hours, search.confirm) == (20, 1.5, 0)
    assert all(map(form.isAncestorOf, form.rows.values()))
    assert search.devices == ("cpu", "cpu")


@pytest.mark.parametrize(
    ("trials", "confirm", "announced"),
    [(3, 1, "3 more runs"), (20, 2, "8 more runs"), (1, 1, "1 more run "), (3, 0, ""), (None, 1, "4 more runs")],
)
def test_search_form_announces_confirming_runs(
    form: SearchForm, qtbot: QtBot, trials: int | None, confirm: int, announced: str
) -> None:
    form.rows["trials"].set_value(trials)
    form.rows["confirm"].set_value(confirm)
    summary = wait_for_validation(form, qtbot).about.text()
    assert summary.startswith(
        f"Each trial trains the current job (MNIST CNN on {Path(JOB.data.dataset).name}, 2 epochs)."
    )
    assert announced in summary
    assert ("more run" in summary) == bool(confirm)


def test_search_form_shows_problems_at_their_fields(form: SearchForm, qtbot: QtBot) -> None:
    form.dimensions["learning_rate"].low.set_value("9")
    form.vary("optimizer", ["sgd"])
    form.vary("batch_size", {"low": 4, "high": 8.5})
    form.rows["hours"].set_value("soon")
    form.rows["devices_per_trial"].set_value(3)
    form.rows["against"].set_value("top1")
    form.reset(("search", "search 2"))
    assert form.rows["name"].value() == "search 3"
    form.rows["name"].set_value("search")
    wait_for_validation(form, qtbot)
    labels = [row.problem_label for row in form.dimensions.values()]
    labels += [form.rows[name].problem_label for name in ("goal", "hours", "confirm", "devices_per_trial", "name")]
    assert all(label.text() for label in labels)
    assert "too few for a trial" in form.devices.text()
    assert (form.start.ready, form.save.ready) == (False, False)
    form.set_job(None, [Problem("epochs", "no", "fix"), Problem("model", "so", "fix", "warning")], (), {}, None)
    assert [problem.field for problem in wait_for_validation(form, qtbot).problems] == ["epochs"]


def test_search_form_saves_and_opens_space_file(form: SearchForm, qtbot: QtBot, tmp_path: Path) -> None:
    form.vary("momentum", {"low": 0.8, "high": 0.9, "step": 0.05})
    form.vary("clip_norm", ["none", 0.1])
    before = wait_for_validation(form, qtbot).search
    assert before is not None
    for path, severity in ((tmp_path / "missing" / "SPACE.toml", "warning"), (tmp_path / "SPACE.toml", "info")):
        with qtbot.waitSignal(form.message) as reported:
            form.save_file(path)
        assert reported.args[1] == severity
    form.show_search(before)
    assert form.values()["space"] == tomllib.loads((tmp_path / "SPACE.toml").read_text())["space"]
    form.reset(())
    form.dimensions["momentum"].remove.click()
    form.rows["trials"].set_value(3)
    with qtbot.waitSignal(form.job_opened) as opened:
        form.open_file(str(tmp_path / "SPACE.toml"))
    assert opened.args[0] == JOB.with_fields(name="", devices=Job().value("devices"))
    form.set_job(opened.args[0], [], ("cpu", "cpu"), {}, None)
    assert wait_for_validation(form, qtbot).search == before


def test_search_form_opens_written_space_file(form: SearchForm, qtbot: QtBot, tmp_path: Path) -> None:
    form.rows["against"].set_value("seconds")
    form.rows["hours"].set_value(7)
    path = tmp_path / "mine.toml"
    space = 'momentum = {low = 0.5, high = 0.75}\n"option.swarm" = [1, 2]\nbirds = [3]'
    path.write_text(
        f'goals = "loss"\n[space]\n{space}\n[job.data]\ndataset = "flowers"\n[job.training]\nepochs = 3\nspeed = 4'
    )
    messages: list[str] = []
    form.message.connect(lambda text, _severity: messages.append(text))
    with qtbot.waitSignal(form.job_opened) as opened:
        form.open_file(str(path))
    assert (opened.args[0].data.dataset, opened.args[0].training.epochs) == (str(tmp_path / "flowers"), 3)
    values = form.values()
    assert values["space"] == {"momentum": {"low": 0.5, "high": 0.75}}
    assert (values["name"], values["goals"], values.get("trials"), values.get("hours")) == (
        "mine",
        ["loss"],
        None,
        None,
    )
    assert ["speed" in messages[0], "option.swarm, birds" in messages[1]] == [True, True]
    with qtbot.waitSignal(form.message):
        form.open_file(str(tmp_path / "missing.toml"))
    assert form.values() == values


def test_search_form_changes_existing_search(form: SearchForm, qtbot: QtBot) -> None:
    search = make_search_config("old", 5, devices=("cpu", "cpu"))
    form.reset(("old", "search"))
    title = form.start.text()
    form.show_search(search)
    assert form.start.text() != title
    assert form.rows["name"].locked
    states = (form.dimensions["momentum"].isEnabled(), form.add.isVisible(), form.about.isVisible(), form.open.ready)
    assert states == (False, False, False, False)
    form.rows["trials"].set_value(50)
    form.rows["confirm"].set_value(3)
    wait_for_validation(form, qtbot)
    assert form.search is not None
    assert form.search.job.training == search.job.training
    assert make_values(form.search) == make_values(search) | {"trials": 50, "confirm": 3}
    assert form.rows["name"].problem_label.text() == "", "its own name is not taken"
    form.reset(())
    assert list(form.dimensions) == list(search.space)
    states = (form.dimensions["momentum"].isEnabled(), form.add.isVisible(), form.about.isVisible(), form.open.ready)
    assert states == (True, True, True, True)
    assert (form.rows["name"].locked, form.start.text()) == ("", title)


def test_space_file_has_all_values_of_a_search() -> None:
    given = {"sampler": "random", "pruner": "median", "confirm": 2, "seed": 7, "best_epochs": 90}
    given |= {"devices": ("cpu", "cpu"), "devices_per_trial": 2, "keep_checkpoints": True}
    space = {"batch_size": Range(low=4, high=64, log=True, step=1), "clip_norm": Choices(values=(None, 0.1))}
    budget = Budget(trials=9, hours=1.5, epochs=70)
    search = make_search_config("mine", goals=2, budget=budget, space=space, **given)
    limits = {"name": "mine", "goals": ["top1", "seconds"], "trials": 9, "hours": 1.5, "total_epochs": 70}
    values = make_values(search)
    ranges = {"batch_size": {"low": 4, "high": 64, "log": True, "step": 1}, "clip_norm": ["none", 0.1]}
    assert values.pop("space") == ranges
    assert values == given | limits | {"devices": ["cpu", "cpu"]}


def test_space_file_names_its_job(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    save_job(JOB, tmp_path / "jobs" / "job.toml")
    path = tmp_path / "space.toml"
    for source, job, fields in (
        ('job = "jobs/job.toml"', JOB, []),
        ("job = 3", None, ["job"]),
        ("job.training.epochs = 0", None, ["epochs"]),
    ):
        path.write_text(source)
        values, read, problems = read_space(path)
        assert (values, read, [problem.field for problem in problems]) == ({"name": "space"}, job, fields)
    values, read, problems = read_space(tmp_path / "missing.toml")
    assert (values, read, len(problems)) == ({}, None, 1)


def test_search_form_shows_problems_of_its_sections(form: SearchForm, qtbot: QtBot) -> None:
    for name in list(form.dimensions):
        form.dimensions[name].remove.click()
    form.set_job(JOB, [], (), {}, None)
    wait_for_validation(form, qtbot)
    assert form.space_problems.text()
    assert form.device_problems.text()
    assert "too few for a trial" in form.devices.text()
    assert not form.other_problems.text()
    form.set_job(None, [Problem("epochs", "It is too large.", "Lower it.")], ("cpu",), {}, None)
    wait_for_validation(form, qtbot)
    assert "It is too large." in form.other_problems.text()
    assert not form.device_problems.text()
    form.vary("learning_rate")
    form.set_job(JOB.with_fields(strategy="single"), [], ("cpu", "cpu"), {}, None)
    assert wait_for_validation(form, qtbot).problems == [], "each trial has one device"
    form.set_job(JOB.with_fields(dataset="/no/such/folder"), [], ("cpu",), {}, None)
    assert [problem.field for problem in wait_for_validation(form, qtbot).problems] == ["dataset"]
