"""The image of a cut: moved by keys and by mouse, and told in words."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication
from pytestqt.modeltest import ModelTester
from pytestqt.qtbot import QtBot

from engine.contract.cut import Cut
from engine.parallel.cut import automatic, reachable
from gui.cut.diagram import CutDiagram
from gui.cut.geometry import lay_out
from gui.cut.table import COLUMNS, StageTable
from gui.cut.view import CutView
from gui.style import theme
from tests.gui.cut.example import a_cut
from tests.gui.sources.devices.snapshots import UUIDS

THREE = ("cpu", "cpu", "cpu")
TITLES = ("CPU worker 0", "CPU worker 1", "CPU worker 2")


@pytest.fixture
def view(styled: QApplication, qtbot: QtBot) -> CutView:
    made = CutView()
    qtbot.addWidget(made)
    made.resize(760, 640)
    made.show()
    made.image.cut_moved.connect(lambda cut: made.show_cut(cut, TITLES))
    made.show_cut(a_cut(("block1", "block3"), THREE), TITLES)
    return made


def shown(view: CutView) -> Cut:
    assert view.image.cut is not None
    return view.image.cut


def column(view: CutView, title: str) -> list[str]:
    place = [each.title for each in COLUMNS].index(title)
    return [view.model.index(row, place).data() for row in range(view.model.rowCount())]


def test_that_left_and_right_move_the_cut_with_the_keyboard_and_the_table_follows(view: CutView, qtbot: QtBot) -> None:
    assert column(view, "Time") == ["3.0 ms", "6.0 ms", "3.0 ms"]
    handle = view.image.handles[0]
    handle.setFocus()
    qtbot.keyClick(handle, Qt.Key.Key_Right)
    assert shown(view).cuts == ("block2", "block3")
    assert not shown(view).chosen
    assert column(view, "Time") == ["6.0 ms", "3.0 ms", "3.0 ms"]
    assert column(view, "Share") == ["50 %", "25 %", "25 %"]
    assert column(view, "Modules") == ["stem to block2", "block3", "block4 to head"]
    assert column(view, "Sent") == ["3.0 KiB", "4.0 KiB", "–"]
    qtbot.keyClick(handle, Qt.Key.Key_Left)
    assert shown(view).cuts == ("block1", "block3")


def test_that_a_cut_stops_at_its_neighbour_and_at_the_end(view: CutView, qtbot: QtBot) -> None:
    first, second = view.image.handles
    for _ in range(4):
        qtbot.keyClick(first, Qt.Key.Key_Right)
        qtbot.keyClick(second, Qt.Key.Key_Right)
    assert shown(view).cuts == ("block3", "block4")
    for _ in range(6):
        qtbot.keyClick(second, Qt.Key.Key_Left)
    assert shown(view).cuts == ("block3", "block4")


def test_that_home_asks_for_the_automatic_cut(view: CutView, qtbot: QtBot) -> None:
    with qtbot.waitSignal(view.image.automatic_wanted):
        qtbot.keyClick(view.image.handles[1], Qt.Key.Key_Home)


def test_that_a_handle_follows_the_mouse_to_the_nearest_place(view: CutView, qtbot: QtBot) -> None:
    image, handle = view.image, view.image.handles[0]
    spot = next(spot for spot in lay_out(shown(view)).spots if spot.split_point == "stem")
    target = QPoint(round(image.stage_rect(0).left() + spot.at * (image.width() - 20)) + 3, 8)
    qtbot.mousePress(handle, Qt.MouseButton.LeftButton, pos=QPoint(handle.width() // 2, 8))
    qtbot.mouseMove(handle, handle.mapFrom(image, target))
    assert shown(view).cuts == ("stem", "block3")
    qtbot.mouseRelease(handle, Qt.MouseButton.LeftButton, pos=handle.mapFrom(image, target))
    assert column(view, "Layers") == ["1", "3", "2"]
    assert handle.x() + handle.width() / 2 == pytest.approx(image.stage_rect(0).right(), abs=1)
    qtbot.mouseMove(handle, QPoint(200, 8))
    assert shown(view).cuts == ("stem", "block3")


def test_that_dragging_past_everything_ends_at_the_last_place_within_reach(view: CutView, qtbot: QtBot) -> None:
    view.image.drag(0, 5000.0)
    assert shown(view).cuts == ("block2", "block3")
    view.image.drag(0, -5000.0)
    assert shown(view).cuts == ("stem", "block3")


def test_that_tab_goes_from_cut_to_cut(view: CutView, qtbot: QtBot) -> None:
    view.order_tabs(after=view.automatic)
    qtbot.waitActive(view)
    view.image.handles[0].setFocus()
    assert [handle.accessibleName() for handle in view.image.handles] == ["Cut 1 of 2", "Cut 2 of 2"]
    view.focusNextChild()
    assert QApplication.focusWidget() is view.image.handles[1]


def test_that_a_cut_tells_where_it_stands_and_what_travels(view: CutView) -> None:
    said = view.image.handles[1].accessibleDescription()
    assert said.startswith("After block3, before block4. Each microbatch sends 4.0 KiB from CPU worker 1")
    assert "Left and Right" in said


def test_that_the_whole_image_is_told_in_words(view: CutView) -> None:
    said = view.image.accessibleDescription()
    assert "Stage 1 on CPU worker 1: block2 to block3, 2 layers, 7.0 k parameters, 6.0 ms (50 %)" in said
    assert said.startswith("The slowest device takes 50 % of the time; 33 % would be even.")


def test_that_being_over_memory_is_written_not_only_coloured(view: CutView) -> None:
    view.show_cut(a_cut(("block1", "block3"), THREE, memory_bytes=(None, 1000, None)), TITLES)
    assert view.whose.text() == "⚠ Exceeds the memory of CPU worker 1."
    assert column(view, "Memory")[1].startswith("⚠ ")
    assert not column(view, "Memory")[0].startswith("⚠ ")


def test_that_the_automatic_button_is_off_while_the_cut_is_automatic(view: CutView) -> None:
    view.show_cut(automatic(shown(view)), TITLES)
    assert not view.automatic.isEnabled()
    view.image.step(0, -1)
    assert view.automatic.isEnabled()
    assert view.whose.text() == "Moved by hand"


def test_that_fewer_stages_leave_no_handle_behind(view: CutView) -> None:
    view.show_cut(a_cut(), TITLES[:2])
    assert len(view.image.handles) == 1
    assert view.model.rowCount() == 2


def test_that_a_read_only_image_has_no_handles(styled: QApplication, qtbot: QtBot) -> None:
    image = CutDiagram(read_only=True)
    qtbot.addWidget(image)
    image.show_cut(a_cut(), TITLES)
    assert image.handles == []
    assert image.sizeHint().height() < 110


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [300, 1800])
def test_that_each_stage_is_painted_in_its_devices_colour(
    styled: QApplication, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, dark: bool, width: int
) -> None:
    monkeypatch.setattr(theme, "is_dark", lambda: dark)
    image = CutDiagram()
    qtbot.addWidget(image)
    image.resize(width, 200)
    image.show_cut(a_cut(("block1", "block3"), UUIDS[:3]), ("GPU 0", "GPU 1", "GPU 2"))
    image.resize(width, image.sizeHint().height())
    image.show()
    drawn = image.grab().toImage()
    for number in range(3):
        strip = image.stage_rect(number).center().toPoint()
        strip.setY(round(image.stage_rect(number).top()) + 5)
        assert drawn.pixelColor(strip).name() == theme.device_color(UUIDS[number])


def test_that_the_table_is_a_sound_model(styled: QApplication, qtmodeltester: ModelTester) -> None:
    model = StageTable()
    qtmodeltester.check(model)
    model.show_cut(a_cut(("block1", "block3"), THREE), TITLES)
    qtmodeltester.check(model)
    assert [model.headerData(n, Qt.Orientation.Horizontal) for n in range(model.columnCount())] == [
        "Stage", "Device", "Modules", "Layers", "Parameters", "Time", "Share", "Memory", "Sent",
    ]  # fmt: skip


def test_that_every_place_within_reach_can_be_gone_to_with_keys_alone(view: CutView, qtbot: QtBot) -> None:
    free = reachable(shown(view), 0)
    for _ in free:
        qtbot.keyClick(view.image.handles[0], Qt.Key.Key_Left)
    seen = [shown(view).cuts[0]]
    for _ in free[1:]:
        qtbot.keyClick(view.image.handles[0], Qt.Key.Key_Right)
        seen.append(shown(view).cuts[0])
    assert tuple(seen) == free
