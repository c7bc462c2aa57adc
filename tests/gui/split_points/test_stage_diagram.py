"""Diagram of the stages: keyboard, mouse and accessible descriptions."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication, QToolTip
from pytestqt.modeltest import ModelTester
from pytestqt.qtbot import QtBot

from engine.contract.model_split import ModelSplit
from engine.parallel.split_points import choose_points, reachable_points
from gui.split_points.diagram import Handle, StageDiagram, lay_out
from gui.split_points.view import COLUMNS, SplitPointsView, StageTable
from tests.gui.split_points.example import make_split
from tests.support.painted import describe_painting
from tests.support.widgets import ShowWidget, request_tool_tip

THREE = ("cpu", "cpu", "cpu")
TITLES = ("CPU worker 0", "CPU worker 1", "CPU worker 2")


@pytest.fixture
def view(show_widget: ShowWidget) -> SplitPointsView:
    view = show_widget(SplitPointsView(), 760, 640)
    view.diagram.split_point_moved.connect(lambda split: view.show_split(split, TITLES))
    view.show_split(make_split(("block1", "block3"), THREE), TITLES)
    return view


def current_split(view: SplitPointsView) -> ModelSplit:
    assert view.diagram.split is not None
    return view.diagram.split


def column(view: SplitPointsView, title: str) -> list[str]:
    index = [each.title for each in COLUMNS].index(title)
    return [view.model.index(row, index).data() for row in range(view.model.rowCount())]


def test_arrow_keys_move_split_point_and_table_follows(view: SplitPointsView, qtbot: QtBot) -> None:
    assert column(view, "Time") == ["3.0 ms", "6.0 ms", "3.0 ms"]
    handle = view.diagram.handles[0]
    assert handle.focusPolicy() & Qt.FocusPolicy.TabFocus
    handle.setFocus()
    with qtbot.waitSignal(view.model.dataChanged, timeout=1000):
        qtbot.keyClick(handle, Qt.Key.Key_Right)
    assert current_split(view).split_points == ("block2", "block3")
    assert handle.toolTip().startswith("After block2, before block3. ")
    assert handle.accessibleDescription() == handle.toolTip()
    assert not current_split(view).chosen
    assert column(view, "Time") == ["6.0 ms", "3.0 ms", "3.0 ms"]
    assert column(view, "Share") == ["50%", "25%", "25%"]
    assert column(view, "Modules") == ["stem to block2", "block3", "block4 to head"]
    assert column(view, "Sent") == ["3.0 KiB", "4.0 KiB", "–"]
    qtbot.keyClick(handle, Qt.Key.Key_Left)
    assert current_split(view).split_points == ("block1", "block3")


def test_split_point_stops_at_neighbor_and_end(view: SplitPointsView, qtbot: QtBot) -> None:
    first, second = view.diagram.handles
    for _ in range(4):
        qtbot.keyClick(first, Qt.Key.Key_Right)
        qtbot.keyClick(second, Qt.Key.Key_Right)
    assert current_split(view).split_points == ("block3", "block4")
    with qtbot.assertNotEmitted(view.diagram.split_point_moved):
        for _ in range(6):
            qtbot.keyClick(second, Qt.Key.Key_Left)
    assert current_split(view).split_points == ("block3", "block4")


def test_home_requests_automatic_split_points(view: SplitPointsView, qtbot: QtBot) -> None:
    with qtbot.waitSignal(view.diagram.automatic_requested):
        qtbot.keyClick(view.diagram.handles[1], Qt.Key.Key_Home)


def test_handle_snaps_to_split_point_at_mouse(view: SplitPointsView, qtbot: QtBot) -> None:
    diagram, handle = view.diagram, view.diagram.handles[0]
    spot = next(spot for spot in lay_out(current_split(view)).spots if spot.split_point == "stem")
    target = QPoint(round(diagram.stage_rect(0).left() + spot.position * (diagram.width() - 20)) + 3, 8)
    qtbot.mousePress(handle, Qt.MouseButton.LeftButton, pos=QPoint(handle.width() // 2, 8))
    assert ("accent" in describe_painting(handle), "3 accent" in describe_painting(diagram)) == (True, True)
    qtbot.mouseMove(handle, handle.mapFrom(diagram, target))
    assert current_split(view).split_points == ("stem", "block3")
    qtbot.mouseRelease(handle, Qt.MouseButton.LeftButton, pos=handle.mapFrom(diagram, target))
    view.use.setFocus()
    assert "accent" not in describe_painting(handle) + describe_painting(diagram)
    assert column(view, "Layers") == ["1", "3", "2"]
    assert handle.x() + handle.width() / 2 == pytest.approx(diagram.stage_rect(0).right(), abs=1)
    qtbot.mouseMove(handle, QPoint(200, 8))
    assert current_split(view).split_points == ("stem", "block3")
    diagram.resize(600, diagram.height())
    assert handle.x() + handle.width() / 2 == pytest.approx(diagram.stage_rect(0).right(), abs=1)
    point = diagram.stage_rect(1).center().toPoint()
    request_tool_tip(diagram, point)
    assert QToolTip.text().startswith("Stage 1 on CPU worker 1: block1 to block3, ")
    assert view.model.index(1, 0).data(Qt.ItemDataRole.ToolTipRole) == QToolTip.text()


def test_drag_stops_at_last_reachable_split_point(view: SplitPointsView, qtbot: QtBot) -> None:
    view.diagram.drag(0, 5000.0)
    assert current_split(view).split_points == ("block2", "block3")
    view.diagram.drag(0, -5000.0)
    assert current_split(view).split_points == ("stem", "block3")


def test_automatic_button_is_disabled_for_automatic_split(view: SplitPointsView) -> None:
    view.show_split(choose_points(current_split(view)), TITLES)
    assert not view.automatic.isEnabled()
    view.diagram.step(0, -1)
    assert view.automatic.isEnabled()
    assert view.origin.text() == "Moved by hand"


def test_diagram_removes_handles_of_fewer_stages(view: SplitPointsView) -> None:
    height = view.table.maximumHeight()
    view.show_split(make_split(), TITLES[:2])
    assert view.table.maximumHeight() < height < 1000
    assert view.table.horizontalHeader().length() == view.table.viewport().width()
    assert (view.diagram.accessibleName(), view.use.objectName()) == ("Stages of the model", "primary")
    view.show_split(make_split(), TITLES[1:])
    assert column(view, "Device") == list(TITLES[1:])
    assert [handle for handle in view.diagram.findChildren(Handle) if handle.isVisible()] == view.diagram.handles
    assert view.diagram.handles[0].accessibleName() == "Split point 1 of 1"
    assert view.model.rowCount() == 2


def test_read_only_diagram_has_no_handles(styled: QApplication, qtbot: QtBot) -> None:
    diagram = StageDiagram(read_only=True)
    qtbot.addWidget(diagram)
    diagram.show_split(make_split(), TITLES)
    assert diagram.handles == []
    assert diagram.sizeHint().height() < 110
    diagram.resize(500, diagram.height())
    texts = ("0 · CPU worker 0", "50% · 6.0 ms", "1 · CPU worker 1", "50% · 6.0 ms", "3.0 KiB →")
    assert describe_painting(diagram).startswith(", ".join(f"“{text}” text" for text in texts))
    alone = make_split(stage_ranks=(0, 0), devices=("cpu",), in_flight=(2, 1), memory_bytes=(1,))
    diagram.show_split(alone, TITLES)
    assert "% ·" not in describe_painting(diagram), "the stages exceed the memory"
    assert "“stays” text" in describe_painting(diagram)
    assert "sends" not in diagram.accessibleDescription()


def test_stage_table_is_consistent(styled: QApplication, qtmodeltester: ModelTester) -> None:
    model = StageTable()
    qtmodeltester.check(model)
    model.show_split(make_split(("block1", "block3"), THREE), TITLES)
    qtmodeltester.check(model)
    assert [model.headerData(n, Qt.Orientation.Horizontal) for n in range(model.columnCount())] == [
        "Stage", "Device", "Modules", "Layers", "Parameters", "Time", "Share", "Memory", "Sent",
    ]  # fmt: skip


def test_keys_reach_every_split_point(view: SplitPointsView, qtbot: QtBot) -> None:
    reachable = reachable_points(current_split(view), 0)
    for _ in reachable:
        qtbot.keyClick(view.diagram.handles[0], Qt.Key.Key_Left)
    visited = [current_split(view).split_points[0]]
    for _ in reachable[1:]:
        qtbot.keyClick(view.diagram.handles[0], Qt.Key.Key_Right)
        visited.append(current_split(view).split_points[0])
    assert tuple(visited) == reachable


def test_diagram_paints_texts_that_fit_and_marks_excess_memory(view: SplitPointsView) -> None:
    view.show_split(make_split(("block1", "block3"), THREE, memory_bytes=(1, None, None)), TITLES)
    painted = describe_painting(view.diagram)
    assert painted.startswith("“0 · CPU worker 0” text, “25% · 3.0 ms” text, “3.0 k parameters” text, “⚠ ")
    assert (", 1 error," in painted, painted.count("url(#fillpattern")) == (True, 2)
    view.diagram.resize(120, view.diagram.height())
    painted = describe_painting(view.diagram)
    assert painted.startswith("“0” text, “⚠” text, “1” text, “50%” text")
