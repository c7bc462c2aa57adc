"""Table model of the run list."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from PySide6.QtCore import QPersistentModelIndex, Qt
from pytestqt.modeltest import ModelTester
from pytestqt.qtbot import QtBot

from engine.runs.folder import RunSummary
from gui.runs.table import COLUMNS, NAME, RunFilter, RunsModel
from tests.gui.sources.written_runs import write_run


def summary(name: str, **changes: Any) -> RunSummary:
    created = write_run(8, name=name).summary()
    assert created is not None
    return msgspec.structs.replace(created, **changes)


def names(model: RunsModel) -> list[str]:
    return [model.index(row, NAME).data() for row in range(model.rowCount())]


def test_runs_model_follows_qt_rules(qtmodeltester: ModelTester) -> None:
    model = RunsModel()
    qtmodeltester.check(model)
    runs = [summary(f"run {n}", started=float(n), strategy="ddp" if n % 2 else "single") for n in range(8)]
    model.merge(runs[2:5])
    model.merge(runs)
    assert names(model) == [f"run {n}" for n in reversed(range(8))]
    model.set_filter(RunFilter(strategy="ddp"))
    assert names(model) == ["run 7", "run 5", "run 3", "run 1"]
    model.sort(NAME, Qt.SortOrder.AscendingOrder)
    model.set_filter(RunFilter())
    model.merge([msgspec.structs.replace(runs[0], name="zero"), runs[1]])
    model.keep_only(["a-new-run", *(run.run_id for run in runs if run.name != "run 4")])
    qtmodeltester.check(model)
    assert names(model) == ["run 1", "run 2", "run 3", "run 5", "run 6", "run 7", "zero"]


def test_runs_model_indexes_follow_their_runs() -> None:
    model = RunsModel()
    runs = [summary(f"run {n}", started=float(n)) for n in range(5)]
    model.merge(runs[:4])
    persistent = QPersistentModelIndex(model.index(1, NAME))
    assert persistent.data() == "run 2"
    model.sort(NAME, Qt.SortOrder.AscendingOrder)
    model.merge(runs)
    model.set_filter(RunFilter(text="run 2"))
    model.set_filter(RunFilter())
    assert persistent.data() == "run 2"
    model.keep_only([run.run_id for run in runs if run.name != "run 2"])
    assert not persistent.isValid()


def test_runs_model_sorts_by_the_values_of_each_column() -> None:
    model = RunsModel()
    a = summary(
        "A", seconds=600.0, best={"top1": 0.9}, model="resnet50", strategy="ddp", devices=("cpu",) * 2, started=3.0
    )
    b = summary("b", seconds=9.0, best={}, model="resnet18", tags=("Z",), started=1.0)
    c = summary("c", seconds=None, best={"top1": 0.1}, state="failed", model="vit_b_16", tags=("x",), started=2.0)
    model.merge([b, c, a])
    first = {"Name": "Abc", "Best": "bcA", "Model": "bAc", "Duration": "cbA", "Started": "bcA", "Tags": "Acb"}
    for number, column in enumerate(COLUMNS):
        model.sort(number, Qt.SortOrder.AscendingOrder)
        assert "".join(names(model)) == first.get(column.title, "".join(names(model)))
        model.sort(number, Qt.SortOrder.DescendingOrder)
        assert "".join(names(model)) == first.get(column.title, "".join(names(model))[::-1])[::-1]
    ends = {"State": "c", "Strategy": "A", "Devices": "A"}
    for title, run in ends.items():
        number = [column.title for column in COLUMNS].index(title)
        places = []
        for order in (Qt.SortOrder.AscendingOrder, Qt.SortOrder.DescendingOrder):
            model.sort(number, order)
            places.append(names(model).index(run))
        assert sorted(places) == [0, 2], title


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {"warm up", "cold"}),
        ("WARM", {"warm up"}),
        ("up resnet-18", {"warm up"}),
        ("flowers", {"warm up"}),
        ("paper", {"warm up"}),
        ("too much", {"cold"}),
        ("DistributedData", {"cold"}),
        ("b_16", {"cold"}),
        ("completed", {"warm up", "cold"}),
        ("warm cold", set()),
        ("20990101", {"cold"}),
    ],
)
def test_run_filter_matches_all_words(text: str, found: set[str]) -> None:
    model = RunsModel()
    model.merge(
        [
            summary("warm up", tags=("paper",)),
            summary(
                "cold",
                run_id="20990101-run",
                notes="0.1 was too much",
                dataset="/data/digits",
                model="vit_b_16",
                strategy="ddp",
            ),
        ]
    )
    model.set_filter(RunFilter(text=text))
    assert set(names(model)) == found


def test_run_filter_combines_criteria() -> None:
    model = RunsModel()
    old, now = 1_000_000.0, time.time()
    model.merge(
        [
            summary("a", state="failed", model="resnet50", started=now, favorite=True),
            summary("b", state="failed", started=old, tags=("v2",)),
            summary("c", strategy="ddp", started=now, tags=("v2", "x")),
        ]
    )
    for run_filter, found in (
        (RunFilter(state="failed"), {"a", "b"}),
        (RunFilter(state="failed", since=now - 60), {"a"}),
        (RunFilter(model="resnet50"), {"a"}),
        (RunFilter(strategy="ddp"), {"c"}),
        (RunFilter(tag="v2"), {"b", "c"}),
        (RunFilter(tag="v2", state="failed"), {"b"}),
        (RunFilter(favorites=True), {"a"}),
        (RunFilter(), {"a", "b", "c"}),
    ):
        model.set_filter(run_filter)
        assert set(names(model)) == found


def test_runs_model_requests_rename(qtbot: QtBot) -> None:
    model = RunsModel()
    run = summary("before")
    model.merge([run])
    index = model.index(0, NAME)
    assert index.data(Qt.ItemDataRole.EditRole) == "before"
    with qtbot.waitSignal(model.renamed) as renamed:
        assert model.setData(index, "after")
    assert renamed.args == [run.run_id, "after"]
    assert index.data() == "before"
    with qtbot.waitSignal(model.renamed) as renamed:
        model.setData(index, "")
    assert renamed.args == [run.run_id, ""]
    model.merge([msgspec.structs.replace(run, name="")])
    assert (index.data() != "", index.data(Qt.ItemDataRole.EditRole)) == (True, "")
    model.merge([run])
    with qtbot.assertNotEmitted(model.renamed):
        model.setData(index, "before")
        assert not model.setData(model.index(0, 1), "after")
    assert not model.flags(model.index(0, 1)) & Qt.ItemFlag.ItemIsEditable
