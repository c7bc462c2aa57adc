"""Requests for drawings of samples. The process that would draw them isn't started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from pytestqt.qtbot import QtBot

from engine.contract.inference.messages import ShowOrder
from engine.runs.folder import RunFolder
from gui.run.model.samples.drawings import BATCH, Drawings
from gui.sources.evaluations import open_evaluation
from tests.gui.run.model.saved_evaluations import save_evaluation


def test_drawings_are_ordered_in_advance_and_removed(
    run: RunFolder, dataset: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_evaluation(save_evaluation(run, dataset, "20261125-100000-val"))
    drawings, orders = Drawings(), []
    monkeypatch.setattr(drawings.child, "start", orders.append)
    drawings.show_evaluation(opened, ("cpu", "cpu"))
    assert not drawings.is_offered  # the class of an image is a text
    drawn = msgspec.structs.replace(opened.evaluation, task="segmentation")
    drawings.show_evaluation(replace(opened, kept=opened.kept._replace(evaluation=drawn)), ("cpu", "cpu"))
    assert drawings.is_offered
    drawings.request(range(3, 40))
    qtbot.waitUntil(lambda: len(orders) == 1)
    (order,) = orders
    assert isinstance(order, ShowOrder)
    assert (order.run, order.checkpoint, order.devices) == (str(run.path), "best.pt", ("cpu",))
    assert (order.evaluation, order.samples) == (str(opened.kept.folder), tuple(range(3, 3 + BATCH)))
    folder = Path(order.out).parent
    assert folder.is_dir()
    drawings.close_work()
    assert not folder.exists()
