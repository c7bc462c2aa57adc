"""Sources of instances: masks of object numbers, of segments and of classes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from engine.data.decoding.outlines import Window
from engine.data.decoding.reading import Unfit
from engine.data.formats.shared.instances import (
    ClassedMask,
    Instance,
    InstanceSplit,
    NumberedLabels,
    NumberedMasks,
    Numbering,
    Outlines,
    PanopticImage,
    Polygons,
    Source,
    paint,
    read_numbered_windows,
)
from engine.data.splits import MaskCode

SIZE = (2, 4)


def save(path: Path, values: object, dtype: npt.DTypeLike = np.uint8) -> str:
    np.save(path.with_suffix(".npy"), np.array(values, dtype))
    return str(path.with_suffix(".npy"))


def summarize_instances(source: Source) -> list[tuple[int, int, bool]]:
    """Return the class, the number of pixels, and the `ignored` flag of each instance of a source."""
    return [(each.label, each.area, each.ignored) for each in source.instances(*SIZE)]


@pytest.mark.parametrize(
    ("numbering", "value", "label", "is_group"),
    [
        (Numbering(1000, bare_labels=True), 7, 7, True),
        (Numbering(1000, bare_labels=True), 999, 999, True),
        (Numbering(1000, bare_labels=True), 1000, 1, False),
        (Numbering(100), 7, 0, False),
        (Numbering(100, first_number=1), 700, 7, True),
        (Numbering(100, first_number=1), 701, 7, False),
    ],
)
def test_numbering_separates_labels_from_numbers(numbering: Numbering, value: int, label: int, is_group: bool) -> None:
    assert numbering.split(value) == (label, is_group)


def test_numbered_labels_ignore_groups_and_other_labels(tmp_path: Path) -> None:
    path = save(tmp_path / "a", [[7, 7, 7001, 9001], [0, 7002, 7002, 9001]], np.int32)
    source = NumberedLabels(path, Numbering(1000, bare_labels=True), {7: 1, 9: 0})
    assert summarize_instances(source) == [(1, 2, True), (1, 1, False), (1, 2, False), (0, 2, False)]
    assert source.labels() == [1, 1, 0]


def test_numbered_masks_count_objects_of_each_mask(tmp_path: Path) -> None:
    paths = [save(tmp_path / "a", [[0, 1, 1, 3], [0] * 4]), save(tmp_path / "b", [[5] * 4] * 2)]
    source = NumberedMasks([(paths[0], 2), (paths[1], 4)])
    assert summarize_instances(source) == [(2, 2, False), (2, 1, False), (4, 8, False)]
    assert source.labels() == [2, 2, 4]


@pytest.mark.parametrize(("background", "labels"), [(0, [0, 1]), (None, [0, 2]), (1, [0, 1])])
def test_classed_mask_takes_the_most_frequent_class(tmp_path: Path, background: int | None, labels: list[int]) -> None:
    numbers = save(tmp_path / "numbers", [[1, 1, 1, 2], [3, 3, 3, 0]])
    classes = save(tmp_path / "classes", [[10, 10, 20, 255], [30, 30, 20, 10]])
    code = MaskCode((10, 20, 30), ignored=(255,))
    source = ClassedMask(numbers, classes, code, background)
    assert source.labels() == labels
    assert summarize_instances(source) == [(label, 3, False) for label in labels]


def test_panoptic_image_reads_ids_from_colors(tmp_path: Path) -> None:
    ids = np.array([[258, 258, 65536, 3], [258, 0, 65536, 3]])
    pixels = np.stack([ids & 0xFF, ids >> 8 & 0xFF, ids >> 16], 2).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    source = PanopticImage(str(tmp_path / "a.png"), [(65536, 5, True), (258, 6, False), (77, 8, False)])
    assert summarize_instances(source) == [(5, 2, True), (6, 3, False)]
    assert source.labels() == [6, 8]


@pytest.mark.parametrize("offset", [0, 70_000])
@pytest.mark.parametrize("background", [0, 1])
def test_numbered_windows_renumber_large_numbers(tmp_path: Path, offset: int, background: int) -> None:
    first = background and offset + 1
    path = save(tmp_path / "a", [[first, offset + 9, offset + 9, offset + 5], [*[first] * 3, first or -5]], np.int32)
    areas = [int(window.pixels.sum()) for window in read_numbered_windows(path, SIZE)]
    assert sorted(areas) == sorted([1, 2, *[5] * background])


def test_masks_of_too_many_numbers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "a", [[1, 70, 300, 400], [0] * 4], np.int32)
    sources: list[Source] = [PanopticImage(path, [(300, 1, False)]), NumberedMasks([(path, 1)])]
    for source, max_numbers, count in ((sources[0], 5, 1), (sources[1], 4, 4)):
        monkeypatch.setattr("engine.data.formats.shared.instances.MAX_NUMBERS", max_numbers)
        assert len(source.instances(*SIZE)) == count
        monkeypatch.setattr("engine.data.formats.shared.instances.MAX_NUMBERS", max_numbers - 1)
        with pytest.raises(Unfit, match="holds"):
            source.instances(*SIZE)


def test_unreadable_masks_have_no_labels(tmp_path: Path) -> None:
    path, missing_path = save(tmp_path / "a", [[1] * 4] * 2), str(tmp_path / "missing.npy")
    assert NumberedMasks([(missing_path, 1), (path, 2)]).labels() == [2]
    assert ClassedMask(missing_path, path, MaskCode((0, 1)), None).labels() == []
    assert NumberedLabels(missing_path, Numbering(10), {}).labels() == []


def test_outlines_limit_the_total_area(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    masks = NumberedMasks([(save(tmp_path / "a", [[1, 2, 1, 2], [2, 1, 2, 1]]), 1)])
    square = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], np.float64)
    source = Polygons([(3, square), (5, square + 99), (4, square)])
    monkeypatch.setattr("engine.data.formats.shared.instances.MAX_PAINTED", 0)
    monkeypatch.setattr("engine.data.formats.shared.instances.MAX_LAYERS", 2)
    assert summarize_instances(source) == [(3, 8, False), (4, 8, False)]
    assert len(masks.instances(*SIZE)) == 2
    monkeypatch.setattr("engine.data.formats.shared.instances.MAX_LAYERS", 1)
    for each in (source, masks):
        with pytest.raises(Unfit):
            each.instances(*SIZE)


def test_paint_draws_small_instances_over_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Instance(Window(0, 1, np.ones((1, 2), bool)), 5)
    large = Instance(Window(0, 0, np.ones((2, 3), bool)), 6)
    ignored = Instance(Window(1, 3, np.ones((1, 1), bool)), 7, ignored=True)
    numbers, classes = paint([small, large, ignored], *SIZE)
    assert numbers.tolist() == [[1, 2, 2, 0], [1, 1, 1, 3]]
    assert classes.tolist() == [[6, 5, 5, 255], [6, 6, 6, 255]]
    monkeypatch.setattr("engine.data.formats.shared.instances.MAX_INSTANCES", 2)
    assert paint([ignored, small, large], *SIZE)[0].tolist() == [[1, 2, 2, 0], [1, 1, 1, 0]]


def test_state_of_a_split_changes_with_any_source(tmp_path: Path) -> None:
    path = save(tmp_path / "a", [[1] * 4] * 2)
    masks = NumberedMasks([(path, 2)])
    states = [InstanceSplit(["a", "b"], [Outlines([], None), source]).state() for source in (masks, Outlines([], None))]
    states.append(InstanceSplit(["a", "b"], [Outlines([], None), NumberedMasks([(path, 3)])]).state())
    states.append(InstanceSplit(["a", "b"], [masks, Outlines([], None)]).state())
    for name, side in (("a", 4), ("a", 9), ("b", 9)):
        path = save(tmp_path / name, [[1] * side] * 2)
        os.utime(path, ns=(5, 5))
        states.append(InstanceSplit(["a", "b"], [Outlines([], None), NumberedMasks([(path, 2)])]).state())
    assert len(set(states)) == 7
