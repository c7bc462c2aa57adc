"""Point clouds that are stored in images, and the views that rotate them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from engine.contract.dataset import Example, PreviewImage
from engine.contract.images import CLOUD_GRAY, CLOUD_TEXT
from engine.data.drawing import encode_png
from engine.tasks.points.drawing import BACKGROUND, draw_points, encode_points
from gui.dataset.examples import ExampleList
from gui.run.predictions.image_pane import ImagePane, Zoom
from gui.widgets.point_cloud import Direction, PointCloud

SIDE = 64


def make_cloud_png() -> bytes:
    """Return the PNG of a point cloud: a flat box of points whose upper half belongs to another class."""
    points = np.random.default_rng(0).uniform(-1, 1, (400, 3)).astype(np.float32) * np.array([4, 2, 1], np.float32)
    classes = (points[:, 2] > 0).astype(np.uint8)
    return encode_png(draw_points(points, classes, SIDE), encode_points(points, classes))


def pixels(image: QImage) -> npt.NDArray[np.uint8]:
    image = image.convertToFormat(QImage.Format.Format_RGB888)
    rows = np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), image.bytesPerLine())
    return rows[:, : 3 * image.width()].reshape(image.height(), image.width(), 3).copy()


def test_cloud_is_first_drawn_like_its_image() -> None:
    image = QImage.fromData(make_cloud_png())
    cloud = PointCloud.of_image(image)
    assert cloud is not None
    first = pixels(cloud.draw(Direction(), SIDE))
    assert np.mean((first == BACKGROUND).all(2) == (pixels(image) == BACKGROUND).all(2)) > 0.9  # positions are rounded
    assert np.abs(pixels(cloud.draw(Direction(90), SIDE)).astype(int) - first).max() > 50
    above = pixels(cloud.draw(Direction(0, 0), SIDE))  # along the axis of least variance
    assert not (above == pixels(cloud.draw(Direction(0, 90), SIDE))).all()


def test_near_points_cover_far_ones_and_are_brighter() -> None:
    red, blue = (255, 0, 0), (0, 0, 255)
    positions = np.array([[0, -0.5, 0], [0, 0.5, 0], [0.9, 0, 0.5]], np.float32)
    cloud = PointCloud(positions, np.array([red, blue, blue], np.uint8))
    drawn = [pixels(cloud.draw(Direction(turn, 90), SIDE)) for turn in (0, 180)]  # from both sides
    assert [tuple(image[SIDE // 2, SIDE // 2]) for image in drawn] == [red, blue]
    assert [tuple(image[SIDE // 4 + 2, column]) for image, column in zip(drawn, (56, 7), strict=True)] == [blue, blue]
    near, far = (tuple(row) for row in ((-0.5, -0.5, 0), (0.5, 0.5, 0)))
    gray = pixels(
        PointCloud(np.array([near, far], np.float32), np.zeros((2, 3), np.uint8)).draw(Direction(0, 90), SIDE)
    )
    shades = [int(gray[SIDE // 2, column, 0]) for column in (SIDE // 4 + 2, 3 * SIDE // 4 - 2)]
    assert [shades[1], shades[0]] == list(CLOUD_GRAY[1:])


@pytest.mark.parametrize("text", ["", "x", "AAAA", "eJwDAAAAAAE="])
def test_damaged_cloud_is_ignored(text: str) -> None:
    image = QImage(4, 4, QImage.Format.Format_RGB32)
    image.setText(CLOUD_TEXT, text)
    assert PointCloud.of_image(image) is None


def test_direction_wraps_around_and_stops_at_the_poles() -> None:
    assert Direction(170, 0).after_turn(20, 200) == Direction(-170, 90)
    assert Direction(0, 0).after_drag(20, -10) == Direction(10, -5)


def drag(widget: QWidget, start: QPoint, end: QPoint) -> None:
    QTest.mousePress(widget, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, start)
    for position in ((start + end) / 2, end):
        QTest.mouseMove(widget, position)
    QTest.mouseRelease(widget, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, end)


def test_panes_turn_clouds_together(styled: QApplication, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    zoom = Zoom()
    panes = [ImagePane(name, zoom) for name in ("Truth", "Prediction")]
    for pane in panes:
        qtbot.addWidget(pane)
        pane.resize(200, 200)
        pane.show()
        pane.show_image(QImage.fromData(make_cloud_png()), "trees")
    assert panes[0].accessibleDescription() == "trees. Turned by 0°, tilted by 40°"
    before = [pane.grab().toImage() for pane in panes]
    drag(panes[0], QPoint(60, 60), QPoint(120, 60))
    assert zoom.view_direction == Direction(30, 40)
    assert all(pane.grab().toImage() != image for pane, image in zip(panes, before, strict=True))
    QTest.keyClick(panes[1], Qt.Key.Key_Up)
    assert panes[0].accessibleDescription() == "trees. Turned by 30°, tilted by 30°"
    QTest.keyClick(panes[1], Qt.Key.Key_0)
    assert [pane.grab().toImage() for pane in panes] == before
    panes[0].show_image("It is missing.", "trees")
    assert (panes[0].image_rect().isEmpty(), panes[0].accessibleDescription()) == (True, "It is missing.")
    monkeypatch.setattr(panes[1], "devicePixelRatioF", lambda: 2.0)  # as on a screen with a high resolution
    zoom.reset()
    assert panes[1].mime_data().imageData().width() == 2 * (200 - 4)  # the pane without its frame


def test_grid_of_examples_turns_clouds(styled: QApplication, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = ExampleList(96, strip=False)
    qtbot.addWidget(examples)
    examples.resize(300, 200)
    examples.show()
    examples.show_examples([Example("", "train", make_cloud_png()), Example("", "train", make_cloud_png())])
    monkeypatch.setattr(examples, "devicePixelRatioF", lambda: 2.0)  # as on a screen with a high resolution
    cloud = PointCloud.of_image(QImage.fromData(make_cloud_png()))
    assert cloud is not None
    assert (pixels(examples.image(0).toImage()) == pixels(cloud.draw(Direction(), 192))).all()
    before = [examples.image(row).toImage() for row in range(2)]
    center = examples.visualItemRect(examples.item(0)).center()
    drag(examples.viewport(), center, center + QPoint(40, 0))
    turned = [examples.image(row).toImage() for row in range(2)]
    assert all(image != first for image, first in zip(turned, before, strict=True))
    assert "Turned by 20°" in examples.item(1).toolTip()
    QTest.keyClick(examples, Qt.Key.Key_Left, Qt.KeyboardModifier.ShiftModifier)
    assert "Turned by 10°" in examples.item(1).toolTip()
    strip = ExampleList(96, strip=True)
    qtbot.addWidget(strip)
    strip.show_examples(examples.examples)
    strip.image(0)
    QTest.keyClick(strip, Qt.Key.Key_Left, Qt.KeyboardModifier.ShiftModifier)
    assert "Turned" not in strip.item(0).toolTip()


def test_rendered_example_replaces_its_cloud(styled: QApplication, qtbot: QtBot) -> None:
    examples = ExampleList(96, strip=False)
    qtbot.addWidget(examples)
    examples.show_examples([Example("", "train", b"", sample) for sample in (5, 6)], {})
    for content, turns in ((make_cloud_png(), True), (encode_png(np.zeros((8, 8, 3), np.uint8)), False)):
        examples.add_rendered(PreviewImage(6, 1, 96, content))
        examples.image(1)
        assert (examples._get_cloud(1) is not None) == turns
