"""Form for a hyperparameter search."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.contract.job import Job
from engine.contract.search import FIXED, Choices, Range
from engine.system import paths
from gui.search.search_file import values_of
from gui.search.search_form import SearchForm
from tests.support.made_searches import a_search

JOB = Job.from_fields(dataset=str(paths.sample_dataset()), model="mnist_cnn", image_size=28, batch_size=8, epochs=2)


@pytest.fixture
def form(styled: QApplication, qtbot: QtBot) -> Iterator[SearchForm]:
    created = SearchForm()
    qtbot.addWidget(created)
    created.set_job(JOB, [], ("cpu", "cpu"), {}, None)
    created.reset(())
    created.show()
    yield created
    created.close_work()


def validated(form: SearchForm, qtbot: QtBot) -> SearchForm:
    qtbot.waitUntil(lambda: not form.is_validating)
    return form


def test_search_form_offers_searchable_fields(form: SearchForm) -> None:
    offered = {form.add.itemData(index) for index in range(1, form.add.count())}
    assert {"weight_decay", "batch_size", "optimizer", "augmentation"} <= offered
    assert not offered & FIXED
    assert "learning_rate" not in offered  # because it is already varied
    form.dimensions["learning_rate"].remove.click()
    assert "learning_rate" in {form.add.itemData(index) for index in range(form.add.count())}


def test_search_form_creates_search(form: SearchForm, qtbot: QtBot) -> None:
    form.vary("optimizer")
    form.dimensions["optimizer"].boxes["lamb"].setChecked(False)
    form.vary("batch_size")
    assert form.dimensions["batch_size"].value() == {"low": 4, "high": 16}
    form.dimensions["batch_size"].scale.set_value("list")
    form.dimensions["batch_size"].listed.set_value("8, 16")
    form.rows["hours"].set_value(1.5)
    form.rows["against"].set_value("seconds")
    form.rows["sampler"].set_value("nsgaii")
    form.rows["pruner"].set_value("none")
    form.rows["confirm"].set_value(0)
    validated(form, qtbot)
    assert form.problems == []
    with qtbot.waitSignal(form.start_requested) as requested:
        form.start.trigger()
    search = requested.args[0]
    assert search.space["learning_rate"] == Range(low=0.001, high=0.1, log=True)
    assert "lamb" not in search.space["optimizer"].values
    assert search.space["batch_size"] == Choices(values=(8, 16))
    assert [goal.measure for goal in search.goals] == ["top1", "seconds"]
    assert (search.budget.trials, search.budget.hours) == (20, 1.5)
    assert search.devices == ("cpu", "cpu")
    assert "2 trials at once" in form.devices.text()


@pytest.mark.parametrize(
    ("trials", "confirm", "announced"),
    [(3, 1, "3 more runs"), (20, 2, "8 more runs"), (1, 1, "1 more run "), (3, 0, "")],
)
def test_search_form_announces_confirming_runs(
    form: SearchForm, qtbot: QtBot, trials: int, confirm: int, announced: str
) -> None:
    form.rows["trials"].set_value(trials)
    form.rows["confirm"].set_value(confirm)
    summary = validated(form, qtbot).about.text()
    assert announced in summary
    assert ("more run" in summary) == bool(confirm)


def test_search_form_shows_problems_at_their_fields(form: SearchForm, qtbot: QtBot) -> None:
    form.dimensions["learning_rate"].low.set_value("9")
    form.vary("optimizer", ["sgd"])
    form.vary("batch_size", {"low": 4, "high": 8.5})
    form.rows["hours"].set_value("soon")
    form.rows["devices_per_trial"].set_value(3)
    form.rows["against"].set_value("seconds")
    form.reset(("search",))
    form.rows["name"].set_value("search")
    validated(form, qtbot)
    labels = [row.problem_label for row in form.dimensions.values()]
    labels += [form.rows[name].problem_label for name in ("hours", "confirm", "devices_per_trial", "name")]
    assert all(label.text() for label in labels)
    assert not form.start.ready


def test_search_form_saves_and_opens_space_file(form: SearchForm, qtbot: QtBot, tmp_path: Path) -> None:
    form.vary("momentum", {"low": 0.8, "high": 0.9, "step": 0.05})
    before = validated(form, qtbot).search
    with qtbot.waitSignal(form.message):
        form.save_file(tmp_path / "SPACE.toml")
    form.dimensions["momentum"].remove.click()
    form.rows["trials"].set_value(3)
    with qtbot.waitSignal(form.job_opened) as opened:
        form.open_file(str(tmp_path / "SPACE.toml"))
    assert opened.args[0].training.epochs == JOB.training.epochs
    form.set_job(opened.args[0], [], ("cpu", "cpu"), {}, None)
    assert validated(form, qtbot).search == before


def test_search_form_changes_existing_search(form: SearchForm, qtbot: QtBot) -> None:
    search = a_search("old", 5, devices=("cpu", "cpu"))
    form.set_job(JOB, [], ("cpu", "cpu"), {}, None)
    form.reset(("old", "search"))
    form.change(search)
    assert form.rows["name"].locked
    assert not form.dimensions["momentum"].isEnabled()
    form.rows["trials"].set_value(50)
    form.rows["confirm"].set_value(3)
    validated(form, qtbot)
    assert form.search is not None
    assert values_of(form.search) == values_of(search) | {"trials": 50, "confirm": 3}
    assert form.rows["name"].problem_label.text() == "", "its own name is not taken"
