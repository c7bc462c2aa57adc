"""Data of hyperparameter searches: axes, curves, texts, and the best trial."""

from __future__ import annotations

import math
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from pytestqt.qtbot import QtBot

from engine.contract.job import Field
from engine.contract.search import Choices, Dimension, DriverFile, Goal, Range, TrialRow
from engine.runs.folder import process_start
from engine.runs.searches import SearchFolder
from gui.sources.searches import (
    SearchData,
    Searches,
    SearchLine,
    field_label,
    format_field_value,
    format_goal_value,
    to_search_data,
)
from gui.titles import strategy_title
from tests.support.made_searches import SECONDS, TOP1, make_search, make_search_config, make_state

COUNT = Goal(measure="parameters", title="Parameters", higher_is_better=False)
LOSS = Goal(measure="loss", title="Validation loss", higher_is_better=False)


def trial(number: int, *values: float | None, **fields: Any) -> TrialRow:
    plain = {"number": number, "run_id": f"run-{number}", "state": "completed", "params": {}, "epochs": 3}
    return TrialRow(values=values, **(plain | fields))  # type: ignore[arg-type]


def make_search_data(
    *trials: TrialRow, space: dict[str, Dimension] | None = None, goals: int = 1, **state: Any
) -> SearchData:
    search = make_search_config(goals=goals, confirm=0, **({"space": space} if space else {}))
    return to_search_data(
        SearchFolder(Path("/searches/a")),
        search,
        make_state(0, goals=goals, **({"trials": trials} | state)),
        "completed",
    )


@pytest.mark.parametrize(
    ("dimension", "values", "positions", "ticks"),
    [
        (Range(low=1e-4, high=1e-1, log=True), (1e-2, 0.0, None, "x"), (-2.0, math.nan, math.nan, math.nan), [(-4.0, "0.0001"), (-1.0, "0.1")]),
        (Range(low=0.5, high=0.5), (0.0, -1.0), (0.0, -1.0), [(0.5, "0.5")]),
        (Choices(values=(False, None, 3)), (None, 3, 4), (1.0, 2.0, math.nan), [(0.0, "off"), (1.0, "none"), (2.0, "3")]),
    ],
)  # fmt: skip
def test_axis_places_and_names_values(
    dimension: Dimension, values: tuple[object, ...], positions: tuple[float, ...], ticks: list[tuple[float, str]]
) -> None:
    (axis,) = make_search_data(space={"momentum": dimension}).axes
    assert [axis.position(value) for value in values] == pytest.approx(positions, nan_ok=True)
    assert axis.ticks() == ticks
    empty = make_search_data(space={"momentum": dimension})
    assert (empty.positions.shape, empty.values.shape) == ((0, 1), (0, 1))
    (single,) = make_search_data(space={"optimizer": Choices(values=("sgd",))}).axes
    assert (single.low, single.high) == (0.0, 1.0)


def test_curves_of_trials_are_separate_and_by_state() -> None:
    data = make_search_data(
        trial(0, 0.5, reported={1: 0.25, 2: 0.5}),
        trial(1, 0.75, reported={1: 0.75}, state="failed"),
        trial(2, None, reported={1: 0.125}, state="pruned"),
    )
    assert (data.others.x.tolist(), data.others.y.tolist()) == (
        pytest.approx([1, 2, math.nan], nan_ok=True),
        pytest.approx([25, 50, math.nan], nan_ok=True),
    )
    assert data.pruned.y.tolist() == pytest.approx([75, math.nan, 12.5, math.nan], nan_ok=True)
    assert data.values.tolist() == pytest.approx(np.array([[50.0], [75.0], [math.nan]]), nan_ok=True)
    assert make_search_data(trial(0, 0.5, 9.0), goals=2).values.tolist() == [[50.0, 9.0]]


def test_best_of_a_front_follows_the_first_goal() -> None:
    trials = (trial(0, 0.5, 9.0), trial(1, 0.75, 10.0), trial(2, 0.9, 11.0), trial(3, None, 1.0))
    data = make_search_data(*trials, goals=2, best=None, front=(0, 1, 3))
    assert data.best is not None
    assert data.best.number == 1
    fastest = replace(data, search=structs.replace(data.search, goals=(SECONDS, TOP1))).best
    assert fastest is not None
    assert fastest.number == 0
    alone = trial(4, 0.5)
    assert make_search_data(alone, best=4).best is alone
    single = make_search_data(alone)
    assert not single.has_repetitions
    assert replace(single, search=structs.replace(single.search, confirm=1)).has_repetitions
    assert make_search_data(trial(0, 0.5, confirmed=(0.5,))).has_repetitions


@pytest.mark.parametrize(
    ("goal", "value", "text"),
    [
        (TOP1, 0.875, "87.5%"),
        (TOP1, None, "–"),
        (LOSS, math.nan, "–"),
        (SECONDS, 90.0, "1:30 min"),
        (COUNT, 1_250_000.0, "1.25 M"),
        (LOSS, 0.25, "0.2500"),
    ],
)
def test_format_goal_value_has_units(goal: Goal, value: float | None, text: str) -> None:
    assert format_goal_value(goal, value) == text


def test_format_field_value_has_titles_and_empty_values(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "momentum": 0.0, "nesterov": False, "ema": True, "milestones": (30, 60), "model": "resnet50", "clip_norm": None,
        "strategy": "ddp", "optimizer": "sgd", "learning_rate": 0.012345, "seed": 7, "pretrained": "",
    }  # fmt: skip
    assert [format_field_value(*each) for each in values.items()] == [
        "0", "off", "on", "30, 60", "ResNet-50", "none", strategy_title("ddp"), "SGD", "0.0123", "7", "none",
    ]  # fmt: skip
    swarm = Field("swarm", "Swarm size", "Number of particles", "main", "int", 3)
    catalogue = SimpleNamespace(options=lambda: [("My task", swarm)])
    monkeypatch.setattr("gui.sources.searches.load_catalogue", lambda: catalogue)
    names = ("momentum", "new", "options.new", "options.swarm")
    assert [field_label(name) for name in names] == ["Momentum", "new", "new", "Swarm size"]


def test_searches_follow_their_files_until_closed(qtbot: QtBot) -> None:
    folders = [make_search(name, 3) for name in "ab"]
    for folder, changed in zip(folders, (2000, 1000), strict=True):
        os.utime(folder.path / "search.json", (changed - 10, changed - 10))
        os.utime(folder.state_file, (changed, changed))
    source = Searches()
    listed: list[list[SearchLine]] = []
    emitted: list[object] = []
    source.listed.connect(listed.append)
    source.loaded.connect(lambda data: emitted.append((data.folder.name, len(data.trials))))
    source.lost.connect(emitted.append)

    def read() -> list[object]:
        source.close()
        emitted.clear()
        with qtbot.waitSignal(source.listed):
            source.start()
        source.stop()
        return [*emitted]

    assert read() == []
    assert [(line.name, line.changed) for line in listed[-1]] == [("a", 2000), ("b", 1000)]
    source.open("a")
    source.open("b")
    qtbot.waitUntil(lambda: emitted == [("b", 3)])
    assert read() == []
    source.open("b")
    assert read() == [("b", 3)], "opening it again shows it again"
    source.refresh()
    source.open("b")  # during a poll, which finds no change
    qtbot.waitUntil(lambda: emitted == [("b", 3), ("b", 3)])
    state_file = folders[1].state_file
    state_file.write_text("{")
    assert read() == [("b", 3)], "its last state stays"
    folders[1].save_state(make_state(4))
    assert read() == [("b", 4)]
    folders[1].save_driver(DriverFile(pid=os.getpid(), start_time=process_start(os.getpid())))
    assert (read(), listed[-1][0].status) == ([("b", 4)], "running")
    (folders[1].path / "search.json").write_text("{")
    (text,) = read()
    assert "is damaged" in str(text)
    shutil.rmtree(folders[1].path)
    assert (read(), read()) == (["The folder of the search “b” is gone."], [])
    source.open("c")
    assert read() == ["The folder of the search “c” is gone."]
    source.open("")
    assert read() == []
    listed.clear()
    source.refresh()
    source.close()
    assert listed == []
