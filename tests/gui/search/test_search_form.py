"""The form of a search: what it offers, what it finds wrong, and what it asks for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.contract.job import Job
from engine.contract.search import FIXED, Choices, Range
from engine.system import paths
from gui.search.search_form import SearchForm
from gui.search.settings import values_of
from tests.support.made_searches import a_search

JOB = Job.from_fields(dataset=str(paths.sample_dataset()), model="mnist_cnn", image_size=28, batch_size=8, epochs=2)


@pytest.fixture
def form(styled: QApplication, qtbot: QtBot) -> Iterator[SearchForm]:
    made = SearchForm()
    qtbot.addWidget(made)
    made.set_job(JOB, [], ("cpu", "cpu"), {}, None)
    made.ask_anew(())
    made.show()
    yield made
    made.close_work()


def judged(form: SearchForm, qtbot: QtBot) -> SearchForm:
    qtbot.waitUntil(lambda: form._judging is None and not form._soon.isActive())
    return form


def test_that_only_fields_that_can_be_searched_are_offered(form: SearchForm) -> None:
    offered = {form.add.itemData(index) for index in range(1, form.add.count())}
    assert {"weight_decay", "batch_size", "optimizer", "augmentation"} <= offered
    assert not offered & FIXED
    assert "learning_rate" not in offered  # which varies from the beginning
    form.dimensions["learning_rate"].remove.click()
    assert "learning_rate" in {form.add.itemData(index) for index in range(form.add.count())}


def test_that_what_is_asked_for_becomes_a_search(form: SearchForm, qtbot: QtBot) -> None:
    form.vary("optimizer")
    form.dimensions["optimizer"].boxes["lamb"].setChecked(False)
    form.vary("batch_size")
    form.dimensions["batch_size"].scale.set_value("list")
    form.dimensions["batch_size"].listed.set_value("8, 16")
    form.rows["hours"].set_value(1.5)
    form.rows["against"].set_value("seconds")
    form.rows["sampler"].set_value("nsgaii")
    form.rows["pruner"].set_value("none")
    form.rows["confirm"].set_value(0)
    judged(form, qtbot)
    assert form.problems == []
    with qtbot.waitSignal(form.start_wanted) as asked:
        form.start.trigger()
    search = asked.args[0]
    assert search.space["learning_rate"] == Range(low=0.001, high=0.1, log=True)
    assert "lamb" not in search.space["optimizer"].values
    assert search.space["batch_size"] == Choices(values=(8, 16))
    assert [goal.measure for goal in search.goals] == ["top1", "seconds"]
    assert (search.budget.trials, search.budget.hours) == (20, 1.5)
    assert search.devices == ("cpu", "cpu")
    assert "2 trials at once" in form.devices.text()


def test_that_all_problems_stand_beside_their_fields_at_once(form: SearchForm, qtbot: QtBot) -> None:
    form.dimensions["learning_rate"].low.set_value("9")
    form.vary("optimizer", ["sgd"])
    form.rows["hours"].set_value("soon")
    form.rows["devices_per_trial"].set_value(3)
    form.rows["against"].set_value("seconds")
    form.ask_anew(("search",))
    form.rows["name"].set_value("search")
    judged(form, qtbot)
    assert "is empty" in form.dimensions["learning_rate"].problem_label.text()
    assert "at least two different values" in form.dimensions["optimizer"].problem_label.text()
    assert "number of hours" in form.rows["hours"].problem_label.text()
    assert "with several goals" in form.rows["confirm"].problem_label.text()
    assert "groups of 3" in form.rows["devices_per_trial"].problem_label.text()
    assert "There is a search of this name." in form.rows["name"].problem_label.text()
    assert not form.start.ready


def test_that_a_space_file_brings_back_the_search_and_its_job(form: SearchForm, qtbot: QtBot, tmp_path: Path) -> None:
    form.vary("momentum", {"low": 0.8, "high": 0.9, "step": 0.05})
    before = judged(form, qtbot).search
    with qtbot.waitSignal(form.message):
        form.save_file(tmp_path / "SPACE.toml")
    form.dimensions["momentum"].remove.click()
    form.rows["trials"].set_value(3)
    with qtbot.waitSignal(form.job_opened) as opened:
        form.open_file(str(tmp_path / "SPACE.toml"))
    assert opened.args[0].training.epochs == JOB.training.epochs
    form.set_job(opened.args[0], [], ("cpu", "cpu"), {}, None)
    assert judged(form, qtbot).search == before


def test_that_a_search_that_goes_on_changes_its_budget_and_what_it_confirms_alone(
    form: SearchForm, qtbot: QtBot
) -> None:
    search = a_search("old", 5, devices=("cpu", "cpu"))
    form.change(search)
    assert form.rows["name"].locked
    assert not form.dimensions["momentum"].isEnabled()
    form.rows["trials"].set_value(50)
    form.rows["confirm"].set_value(3)
    judged(form, qtbot)
    assert form.search is not None
    assert values_of(form.search) == values_of(search) | {"trials": 50, "confirm": 3}
