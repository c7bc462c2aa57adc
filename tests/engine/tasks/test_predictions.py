"""Predictions as text and as drawings."""

from __future__ import annotations

import numpy as np
import pytest

from engine.data.decoding.mask_values import NO_CLASS, class_colors
from engine.data.decoding.outlines import Window
from engine.data.drawing import overlay_mask
from engine.tasks.predictions import Lines, Mask, Objects, PointClasses, create_palette

CLASSES = ("road", "car", "tree")
IMAGE = np.full((60, 80, 3), 90, np.uint8)


def test_covered_fractions_leave_out_unlabeled_pixels() -> None:
    plane = np.array([[2, 1, 2, NO_CLASS], [2, 1, NO_CLASS, NO_CLASS]], np.uint8)
    prediction = Mask(classes=CLASSES, plane=plane, probability=np.ones((2, 4), np.float32))
    assert prediction.ranked_classes == ((2, 1), pytest.approx((0.6, 0.4)))
    assert prediction.text == "tree 60%, car 40%"
    points = PointClasses(classes=CLASSES, numbers=np.array([1, 0, NO_CLASS, NO_CLASS]), probability=np.ones(4))
    assert points.text == "road 50%, car 50%"
    assert PointClasses(classes=CLASSES, numbers=np.full(2, NO_CLASS), probability=np.ones(2)).ranked_classes == (
        (),
        (),
    )


def test_lines_include_the_threshold() -> None:
    lines = Lines(classes=("edge",), likelihood=np.array([[0.5, 0.4], [0.9, 0.1]], np.float32))
    assert (lines.mask.tolist(), lines.text) == ([[True, False], [True, False]], "Lines on 50.0% of it")


def test_objects_are_drawn_with_the_best_on_top() -> None:
    corner = np.ones((20, 30), bool)
    corner[10:, :10] = False
    windows = Window(20, 25, corner), Window(10, 5, np.ones((40, 60), bool))
    boxes = np.array([[25, 20, 55, 40], [5, 10, 65, 50]], np.float32)
    scores = np.array([0.9, 0.6], np.float32)
    fields = {"classes": CLASSES, "size": (60, 80), "boxes": boxes, "scores": scores, "numbers": np.array([1, 1])}
    objects = Objects(**fields, windows=windows)
    assert objects.masks.shape == (2, 60, 80)
    assert (objects.masks[0, 20:40, 25:55] == corner).all()
    assert objects.masks.sum((1, 2)).tolist() == [500, 2400]
    assert objects.text == "2 car"
    plane = np.where(objects.masks[0], 1, 2 * objects.masks[1]).astype(np.uint8)
    outlined = Objects(**fields)
    assert (objects.draw(IMAGE) == outlined.draw(overlay_mask(IMAGE, plane))).all()  # type: ignore[arg-type]
    assert (outlined.draw(IMAGE) != IMAGE).any()
    with pytest.raises(ValueError, match="no masks"):
        _ = outlined.masks


def test_palette_has_the_colors_of_the_legend() -> None:
    palette = create_palette(3)
    assert palette.shape == (256, 3)
    assert (palette[:3] == class_colors(3)).all()
    assert palette[1].any()
    assert not palette[3:NO_CLASS].any()
    assert palette[NO_CLASS].tolist() == [255] * 3
