"""Statistics that the inspection computes about objects and masks, and its warnings about them."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from engine.contract.dataset import SplitReport
from engine.contract.problems import Problem
from engine.data.decoding.reading import Unfit
from engine.data.drawing import overlay_mask
from engine.data.formats.shared.boxes import BoxSplit
from engine.data.inspection import masks as masks_module
from engine.data.inspection.masks import inspect_masks
from engine.data.inspection.objects import (
    SMALL,
    Objects,
    check_image,
    check_objects,
    inspect_boxes,
    make_report,
    select_examples,
)
from engine.data.splits import MaskCode, MaskSplit, RecognizedDataset
from tests.support.images import write_noise

CLASSES = ("ant", "bee", "cow")


def objects(labels: list[int], images: list[int], relative: float | list[float] = 0.5) -> Objects:
    sides = np.arange(1, len(labels) + 1) * 10.0
    return Objects(np.array(labels, np.int64), sides, np.full(len(labels), relative), np.array(images, np.int64))


def test_report_counts_objects_and_the_images_that_contain_them() -> None:
    found = make_report("train", CLASSES, objects([0, 0, 0, 1, 0], [0, 0, 2, 2, 2]), 4, is_drawn=True)
    assert found.counts == {"ant": 2, "bee": 1, "cow": 0}
    assert found.objects == {"ant": 4, "bee": 1, "cow": 0}
    assert (found.name, found.is_drawn, found.total) == ("train", True, 4)
    assert found.object_sides == pytest.approx((12, 30, 48))
    assert make_report("val", CLASSES, objects([], []), 4, is_drawn=False).object_sides is None


def messages(name: str, held: Objects, usable: int = 4, inspected: int = 4) -> list[str]:
    split = make_report(name, CLASSES, held, usable, is_drawn=False)
    return [problem.message for problem in check_objects(name, split, held, inspected, "boxes")]


def test_objects_are_doubted_by_class_image_and_size() -> None:
    full = objects([0, 1, 2, 0], [0, 1, 2, 3])
    assert messages("train", full) == []
    assert messages("train", full, usable=0) == ["None of the training images can be used."]
    assert messages("val", objects([], [])) == ["None of the validation images has any boxes."]
    never, empty = messages("val", objects([0, 2, 2], [1, 1, 1]))
    assert never == "The validation images have no boxes of bee; this is never validated."
    assert empty == "3 of the 4 validation images have no boxes."
    few = objects([0, 1, 2], [0, 1, 1])
    assert messages("train", few, inspected=3) == ["1 of the 3 training images inspected has no boxes."]
    small = objects([0, 1, 2, 0], [0, 1, 2, 3], [0.9 * SMALL] * 3 + [0.9])
    assert messages("train", small) == ["Half of the boxes are smaller than 1.8% of their image's longer side."]
    assert messages("val", small) == messages("train", objects([0, 1, 2, 0], [0, 1, 2, 3], SMALL)) == []


def test_examples_prefer_images_with_objects() -> None:
    assert select_examples(np.array([3, 3, 9, 5]), [1, 3, 5]) == [3, 5]
    assert select_examples(np.array([9]), [1, 3, 5]) == [1, 3, 5]
    assert select_examples(np.arange(100), [*range(10, 110)]) == [*range(10, 100, 8)]


def test_boxes_are_measured_in_usable_images_alone(tmp_path: Path) -> None:
    files = [str(write_noise(tmp_path / f"{number}.png", number, (80, 40))) for number in range(3)]
    Path(files[1]).write_bytes(b"torn")
    boxes = np.array([[0, 0, 4, 9], [0, 0, 8, 8], [0, 0, 50, 30], [0, 0, 8, 2], [0, 0, 40, 40]], np.float32)
    sizes = np.array([[40, 80]] * 3)
    ignored = np.array([False, False, False, False, True])
    split = BoxSplit(files, sizes, np.array([0, 2, 3, 5]), boxes, np.array([0, 1, 1, 0, 2]), ignored)
    left_out: list[str] = []
    result = inspect_boxes(
        RecognizedDataset("", CLASSES, train=split), lambda *_: None, lambda path, reason: left_out.append(path), 2
    )
    (found,) = result.splits
    assert left_out == [files[1]]
    assert (found.counts, found.objects) == ({"ant": 2, "bee": 1, "cow": 0}, {"ant": 2, "bee": 1, "cow": 0})
    assert found.object_sides == pytest.approx(tuple(np.percentile([4, 6, 8], (5, 50, 95))))
    assert [example.sample for example in result.examples] == [0, 2]


def test_sizes_of_annotations_must_be_those_of_the_image(tmp_path: Path) -> None:
    path = str(write_noise(tmp_path / "a.png", 0, (30, 20)))
    assert check_image(path, [(20, 30), (20, 30)], "boxes", decode=True) == (20, 30)
    with pytest.raises(Unfit, match="it has 30 x 20 pixels, but its boxes belong to an image of 20 x 30"):
        check_image(path, [(20, 30), (30, 20)], "boxes", decode=False)


def test_masks_are_measured_by_value_and_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    masks = []
    for number, rows in enumerate(([0, 100, 90, 110], [0, 0, 0, 110], [0] * 4)):
        write_noise(tmp_path / f"{number}.png", number, (10, 4))
        masks.append(str(tmp_path / f"mask{number}.png"))
        Image.fromarray(np.repeat(np.array(rows, np.uint8)[:, None], 10, 1)).save(masks[-1])
    split = MaskSplit([str(tmp_path / f"{number}.png") for number in range(3)], masks)
    code = MaskCode((0, 100, 200), nearest=True)
    found = RecognizedDataset("", CLASSES, train=split, val=split, code=code)
    result = inspect_masks(found, lambda *_: None, lambda *_: None, 2)
    shares = {"ant": 8 / 12, "bee": 4 / 12, "cow": 0.0}
    counts = {"ant": 3, "bee": 2, "cow": 0}
    assert result.splits == [SplitReport(name, counts, total=3, shares=shares) for name in ("train", "val")]
    assert [problem.message for problem in result.problems] == [
        f"cow do not occur in the {title} masks, so they are never {verb}."
        for title, verb in (("training", "learned"), ("validation", "validated"))
    ]
    table = [(each.value, each.class_name, each.masks, each.share) for each in result.mask_values]
    assert table == [
        ("0", "ant", 6, 8 / 12), ("90", "bee", 2, 1 / 12), ("100", "bee", 2, 1 / 12), ("110", "bee", 4, 2 / 12),
    ]  # fmt: skip
    monkeypatch.setattr(masks_module, "MAX_VALUES_LISTED", 2)
    result = inspect_masks(found, lambda *_: None, lambda *_: None, 2)
    assert [each.value for each in result.mask_values] == ["0", "110"]


def test_rare_classes_are_reported_for_training_alone(tmp_path: Path) -> None:
    paths = [str(write_noise(tmp_path / "a.png", 0, (100, 20))), str(tmp_path / "mask.png")]
    values = np.zeros((20, 100), np.uint8)
    values[0, 0] = 1
    values[1, :2] = 2
    Image.fromarray(values).save(paths[1])
    split = MaskSplit(paths[:1], paths[1:])
    note = Problem("dataset", "The values have no names.", severity="warning")
    twice = MaskSplit(paths[:1] * 2, paths[1:] * 2)
    found = RecognizedDataset("", CLASSES, train=split, val=twice, code=MaskCode((0, 1, 2), notes=(note,)))
    result = inspect_masks(found, lambda *_: None, lambda *_: None, 1)
    (example,) = result.examples
    with Image.open(BytesIO(example.png)) as drawn, Image.open(paths[0]) as image:
        np.testing.assert_array_equal(np.asarray(drawn), overlay_mask(np.asarray(image.convert("RGB")), values))
    first, problem = result.problems
    assert first == note
    assert problem.message == "bee (0.05%) cover less than 0.1% of the pixels."


@pytest.mark.parametrize(("size", "is_usable"), [((12, 8), True), ((8, 12), True), ((12, 12), False), ((6, 4), False)])
def test_masks_of_rotated_images_have_one_of_their_sizes(
    tmp_path: Path, size: tuple[int, int], is_usable: bool
) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (12, 8), (200, 30, 30)).save(tmp_path / "a.jpg", exif=exif)
    upright = np.repeat(np.array([1, 0], np.uint8), 6)[:, None].repeat(8, 1)
    mask = {(8, 12): upright, (12, 8): np.rot90(upright)}.get(size, np.zeros(size[::-1], np.uint8))
    Image.fromarray(mask).save(tmp_path / "a.png")
    split = MaskSplit([str(tmp_path / "a.jpg")], [str(tmp_path / "a.png")])
    found = RecognizedDataset("", ("ant", "bee"), train=split, code=MaskCode((0, 1)))
    reasons: list[str] = []
    result = inspect_masks(found, lambda *_: None, lambda path, reason: reasons.append(reason), 1)
    assert ([each.total for each in result.splits], len(reasons)) == ([int(is_usable)], int(not is_usable))
    with Image.open(tmp_path / "a.jpg") as image:
        expected = overlay_mask(np.asarray(ImageOps.exif_transpose(image)), upright)
    drawn = [np.asarray(Image.open(BytesIO(each.png))).tolist() for each in result.examples]
    assert drawn == [expected.tolist()] * is_usable
    unusable = [] if is_usable else ["None of the training images can be used."]
    assert [problem.message for problem in result.problems if problem.severity == "error"] == unusable
