"""Folders of images and edge maps: detection, reading, layouts and inspection."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
import torch
from PIL import ExifTags, Image
from scipy import ndimage

from engine.contract.dataset import DatasetReport
from engine.contract.job import Job
from engine.data.datasets.images import ImageSet, UnreadableImage
from engine.data.datasets.open_splits import open_splits
from engine.data.datasets.samples import SampleSet
from engine.data.decoding.reading import Unfit
from engine.data.formats.format import Confidence
from engine.data.formats.registry import recognize
from engine.data.formats.tree import Tree
from engine.data.inspection.inspector import inspect
from engine.data.splits import RecognizedDataset
from engine.tasks.edges import decoding, inspection
from engine.tasks.edges.decoding import FULL, OUTSIDE, AnnotatedEdges, letterbox_edges, read_edges, thin_lines
from engine.tasks.edges.formats import FORMAT, EdgeSplit
from engine.tasks.edges.samples import EdgesOfMasks
from engine.tasks.registry import TASKS
from tests.support.dataset_formats import edges as edges_writer
from tests.support.dataset_formats.pixels import save_mask
from tests.support.dataset_formats.truth import TRUTH
from tests.support.edges import find_border, make_edged, save_matlab
from tests.support.masks import make_disc, make_masked

EDGES = ("edges",)
BSDS = Path(__file__).parents[5] / "shared/datasets/bsds500_subset"


def load_planes(split: ImageSet | SampleSet, index: int) -> torch.Tensor:
    """Return image `index` of a split in color, [channels, 32, 32], followed by its edge maps as more channels."""
    assert isinstance(split, ImageSet)
    return split.load(index, 32, 3)


def recognize_folder(folder: Path, formats: tuple[str, ...] = EDGES) -> RecognizedDataset:
    return recognize(str(folder), val_fraction=0.25, seed=0, kinds=formats)


def inspect_folder(folder: Path) -> DatasetReport:
    return inspect(str(folder), val_fraction=0.25, seed=0, progress=lambda done, total: None, kinds=EDGES)


def names(split: object) -> list[tuple[str, str]]:
    assert isinstance(split, EdgeSplit)
    return [(Path(one).name, Path(other).name) for one, other in zip(split.files, split.edges, strict=True)]


def move_files(folder: Path, moves: dict[str, str]) -> Path:
    for old, new in moves.items():
        place = folder.parent / "moved" / new
        place.parent.mkdir(parents=True, exist_ok=True)
        (folder / old).rename(place)
    return folder.parent / "moved"


@pytest.mark.parametrize(
    "moves",
    [
        {"images": "images", "edges": "edges"},
        {"images": "data/images", "edges": "data/groundTruth"},
        {"images": "edges/imgs", "edges": "edges/edge_maps"},
        {"images/train": "train/image", "images/val": "val/image", "edges/train": "train/edge", "edges/val": "val/edge"},
        {"images/train": "images/train2020", "images/val": "images/val2020", "edges/train": "edges/train2020",
         "edges/val": "edges/val2020"},
        {"images/train": "images/train/rgbr/real", "images/val": "images/val", "edges/train": "edges/train/rgbr/real",
         "edges/val": "edges/val"},
    ],
)  # fmt: skip
def test_edge_folders_are_found_by_name(tmp_path: Path, moves: dict[str, str]) -> None:
    recognized = recognize_folder(move_files(make_edged(tmp_path / "made", {"train": 3, "val": 2}), moves))
    assert (recognized.kind, recognized.classes, recognized.problems) == ("edges", ("edge",), ())
    assert names(recognized.train) == [(f"00{number}.png", f"00{number}.png") for number in range(3)]
    assert len(names(recognized.val)) == 2


def test_edges_without_split_draw_validation(tmp_path: Path) -> None:
    folder = move_files(make_edged(tmp_path / "made", {"": 9}), {"images": "images", "edges": "edges"})
    (folder / "edges/000.png").unlink()
    (folder / "images/001.png").unlink()
    recognized = recognize_folder(folder)
    train, val = recognized.train, recognized.val
    assert (len(names(train)), len(names(val))) == (5, 2)
    assert val is not None
    assert val.is_drawn
    assert not set(names(train)) & set(names(val))
    messages = " ".join(map(str, recognized.problems))
    assert "without edges: 000.png" in messages
    assert "without an image: 001.png" in messages


def test_edge_folder_is_recognized_unambiguously(tmp_path: Path) -> None:
    edges = make_edged(tmp_path / "edges", {"train": 3, "val": 2})
    (problem,) = recognize_folder(edges, ("classes",)).problems
    assert "holds images with edges" in problem.message
    assert "Edge detection" in problem.remedy
    for name in ("train/images", "train/edges", "val/images", "val/edges"):
        (tmp_path / "classes" / name).mkdir(parents=True)
    (problem,) = recognize_folder(tmp_path / "classes").problems
    assert "does not hold images with edges" in problem.message


def test_edges_of_files_are_read_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = np.zeros((2, 4, 6), bool)
    first[1], second[1, :3] = True, True
    save_matlab(tmp_path / "a.mat", [first, second])
    drawn = read_edges(str((tmp_path / "a.mat").rename(tmp_path / "A.MAT")))
    assert (drawn.layers.tolist(), drawn.agreement) == ([first.tolist(), second.tolist()], None)
    assert (drawn.edge_fraction, drawn.is_inverted) == (0.25, False)
    assert AnnotatedEdges(np.array([[[True, False]]])).is_inverted is False
    Image.fromarray(np.array([[0, 76, 77, 255]], np.uint8)).save(tmp_path / "a.png")
    drawn = read_edges(str(tmp_path / "a.png"))
    assert (drawn.layers.tolist(), drawn.agreement.tolist()) == ([[[False, False, True, True]]], [[0, 76, 77, 255]])  # type: ignore[union-attr]
    share, _ = letterbox_edges(drawn, 12)
    assert share[5].tolist() == np.repeat([0, 76, 77, FULL], 3).tolist()
    save_matlab(tmp_path / "sizes.mat", [first, second[:, :5]])
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(tmp_path / "deep.png")
    scipy.io.savemat(tmp_path / "other.mat", {"truth": first})
    scipy.io.savemat(tmp_path / "plain.mat", {"groundTruth": first})
    cells = np.empty((1, 1), object)
    cells[0, 0] = {"Segmentation": first}
    scipy.io.savemat(tmp_path / "segments.mat", {"groundTruth": cells})
    (tmp_path / "cut.mat").write_bytes((tmp_path / "sizes.mat").read_bytes()[:100])
    for name, reason in (
        ("cut.mat", "it is truncated"),
        ("sizes.mat", "different sizes"),
        ("other.mat", "it has no groundTruth"),
        ("plain.mat", "it has no groundTruth"),
        ("segments.mat", "its groundTruth has no Boundaries"),
        ("deep.png", "must have 8 bits"),
    ):
        with pytest.raises(Unfit, match=reason):
            read_edges(str(tmp_path / name))
    cells[0, 0] = {"Boundaries": scipy.sparse.csc_matrix(first.astype(np.float64))}
    scipy.io.savemat(tmp_path / "sparse.mat", {"groundTruth": cells})
    assert read_edges(str(tmp_path / "sparse.mat")).layers.tolist() == [first.tolist()]
    monkeypatch.setattr(decoding, "MAX_PIXELS", 47)
    with pytest.raises(Unfit, match=r"too large \(4 x 6 pixels\)"):
        read_edges(str(tmp_path / "A.MAT"))  # of two annotators


def test_annotators_are_separate(tmp_path: Path) -> None:
    layers = [np.zeros((20, 30), bool) for _ in range(10)]
    for number, layer in enumerate(layers):
        layer[2 * number, 5:25] = True
        layer[19, 3] = number < 9
    save_matlab(tmp_path / "a.mat", layers)
    drawn = read_edges(str(tmp_path / "a.mat"))
    assert drawn.sides == (20, 30)
    share, bits = letterbox_edges(drawn, 30)
    assert (share[:5] == OUTSIDE).all()
    assert not bits[:5].any()
    inside = (slice(5, 25), slice(None))
    assert share[inside][19, 3] == round(0.9 * FULL)
    assert (share[inside][2 * np.arange(10), 10] == round(0.1 * FULL)).all()
    for number in range(8):
        np.testing.assert_array_equal(bits[inside] >> number & 1, layers[number])


def test_shrunk_edges_stay_connected_and_thin() -> None:
    rows, columns = np.mgrid[:240, :320]
    layer = np.abs(np.hypot(rows - 120, columns - 160) - 90) < 0.8
    for size in (64, 100, 200, 319):
        share, bits = letterbox_edges(AnnotatedEdges(layer[None]), size)
        assert ndimage.label(bits, np.ones((3, 3)))[1] == 1
        assert ndimage.label(bits == 0)[1] == 2, "the circle is still closed"
        assert bits.sum() < 2 * np.pi * 90 * size / 320
        assert set(np.unique(share)) <= {0, FULL, OUTSIDE}
        assert (share[bits > 0] == FULL).all()


@pytest.mark.parametrize(("row", "column"), [(0, 0), (9, 29), (120, 161), (239, 319)])
def test_shrunk_edge_is_at_the_place_of_its_pixel(row: int, column: int) -> None:
    layer = np.zeros((240, 320), bool)
    layer[row, column] = True
    share, _bits = letterbox_edges(AnnotatedEdges(layer[None]), 100)
    above = (100 - 75) // 2
    assert np.argwhere(share == FULL).tolist() == [[above + row * 75 // 240, column * 100 // 320]]


def test_gray_edges_keep_their_strength() -> None:
    levels = np.zeros((10, 10), np.uint8)
    levels[:, 4] = 51
    levels[4] = 255
    share, bits = letterbox_edges(AnnotatedEdges((levels > 77)[None], levels), 40)
    assert (share[16:20, :16] == FULL).all()
    assert share[0, 17] == round(51 * FULL / 255)
    assert bits.sum() <= 40  # one of four rows remains
    assert ndimage.label(bits, np.ones((3, 3)))[1] == 1
    share, _ = letterbox_edges(AnnotatedEdges((np.arange(16).reshape(1, 4, 4) // 4) == 1), 6)
    assert np.flatnonzero(share[:, 0]).tolist() == [1, 2]


@pytest.mark.parametrize("seed", range(4))
def test_thinning_preserves_connectivity(seed: int) -> None:
    noise = ndimage.gaussian_filter(np.random.default_rng(seed).random((60, 80)), 2)
    plane = noise > np.median(noise)
    thin = thin_lines(plane)
    assert not (thin & ~plane).any()
    for of_thin, of_plane in (
        (thin, plane),
        (np.pad(~thin, 1, constant_values=True), np.pad(~plane, 1, constant_values=True)),
    ):
        neighbors = np.ones((3, 3)) if of_plane is plane else None
        assert ndimage.label(of_thin, neighbors)[1] == ndimage.label(of_plane, neighbors)[1]
    squares = thin[1:, 1:] & thin[:-1, 1:] & thin[1:, :-1] & thin[:-1, :-1]
    assert squares.sum() <= thin.sum() / 100
    np.testing.assert_array_equal(thin_lines(thin), thin)


def test_thinning_continues_until_nothing_changes() -> None:
    plane = np.array([[1, 1, 1], [0, 1, 1], [1, 1, 1]])
    assert thin_lines(plane).astype(int).tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0]]


def test_edge_images_have_two_planes(tmp_path: Path) -> None:
    folder = make_edged(tmp_path, {"train": 3, "val": 2}, matlab=True)
    splits = open_splits(str(folder), val_fraction=0.2, seed=0, kinds=EDGES)
    assert (splits.channels, splits.format, splits.train.planes) == (3, "edges", 2)
    planes = load_planes(splits.train, 1)[3:]
    _, mask = make_disc(32, 2)
    edges = torch.from_numpy(find_border(mask))
    assert ((planes[1] & 1) > 0)[edges].float().mean() > 0.9
    assert (planes[0][:16][edges[:16]] == FULL).all()
    assert (planes[0][16:][edges[16:]] == FULL // 2).all()


def test_padding_creates_no_edges(tmp_path: Path) -> None:
    folder = make_edged(tmp_path, {"train": 2, "val": 2})
    pixels = np.random.default_rng(0).integers(0, 256, (20, 32, 3), np.uint8)
    Image.fromarray(pixels).save(folder / "images/train/000.png")
    Image.fromarray(np.full((20, 32), 255, np.uint8)).save(folder / "edges/train/000.png")
    loaded = load_planes(open_splits(str(folder), val_fraction=0.2, seed=0, kinds=EDGES).train, 0).numpy()
    np.testing.assert_array_equal(loaded[:3, 6:26], pixels.transpose(2, 0, 1))
    assert (loaded[:3, :6] == loaded[:3, 6:7]).all()
    assert (loaded[:3, 26:] == loaded[:3, 25:26]).all()
    assert (loaded[3, :6] == OUTSIDE).all()


def test_invalid_edge_files_are_reported(tmp_path: Path) -> None:
    folder = make_edged(tmp_path / "png", {"train": 4, "val": 2})
    Image.fromarray(np.zeros((8, 9), np.uint8)).save(folder / "edges/train/000.png")
    (folder / "edges/train/001.png").write_bytes(b"nothing")
    Image.fromarray(np.zeros((32, 32), np.uint16)).save(folder / "edges/train/002.png")
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    for name in ("images", "edges"):  # valid edges, in the stored orientation of their image
        with Image.open(folder / name / "train/003.png") as image:
            image.crop((0, 0, 32, 20)).save(folder / name / "train/003.png", exif=exif if name == "images" else None)
    splits = open_splits(str(folder), val_fraction=0.2, seed=0, kinds=EDGES)
    with pytest.raises(
        UnreadableImage, match=r"its edges have a different size \(9 x 8 pixels, the image has 32 x 32\)"
    ):
        load_planes(splits.train, 0)
    with pytest.raises(UnreadableImage, match=r"001\.png"):
        load_planes(splits.train, 1)
    report = inspect_folder(folder)
    assert [each.path for each in report.unreadable] == [f"images/train/00{number}.png" for number in range(3)]
    matlab = make_edged(tmp_path / "matlab", {"train": 2, "val": 2}, matlab=True)
    (matlab / "groundTruth/train/000.mat").write_bytes(b"nothing")
    assert [each.path for each in inspect_folder(matlab).unreadable] == ["images/train/000.png"]


def test_inspection_shows_the_edge_fraction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_edged(tmp_path, {"train": 5, "val": 2})
    for name in ("train/004", "val/000", "val/001"):
        Image.fromarray(np.zeros((32, 32), np.uint8)).save(folder / f"edges/{name}.png")
    report = inspect_folder(folder)
    train = report.split("train")
    assert train is not None
    assert (train.images, train.counts) == (5, {"edge": 4})
    assert train.shares["edge"] == pytest.approx(
        np.mean([find_border(make_disc(32, seed)[1]).mean() for seed in range(1, 5)]) * 0.8
    )
    problem, error = report.problems
    assert "1 of 5 training images have no edges" in problem.message
    assert (error.message, error.severity) == ("None of the validation images has an edge.", "error")
    assert [example.sample for example in report.examples] == list(range(5))
    with Image.open(BytesIO(report.examples[0].png)) as drawn:
        edges = find_border(make_disc(32, 1)[1])
        pixels = make_disc(32, 1)[0]
        np.testing.assert_array_equal(drawn, np.where(edges[..., None], [255, 64, 64], pixels))
    monkeypatch.setattr(inspection, "MAX_DECODED", 2)
    train = inspect_folder(folder).split("train")
    assert train is not None
    assert (train.images, train.counts) == (5, {"edge": 2})


@pytest.mark.parametrize(
    ("change", "message"),
    [(lambda levels: 255 - levels, "invert those that are black on white"), (lambda levels: levels // 255, "brighter than 30%")],
)  # fmt: skip
def test_inverted_edges_are_reported(tmp_path: Path, change: Callable[[np.ndarray], np.ndarray], message: str) -> None:
    folder = make_edged(tmp_path, {"train": 3, "val": 2})
    for path in folder.glob("edges/*/*.png"):
        Image.fromarray(change(np.asarray(Image.open(path)))).save(path)
    assert message in " ".join(map(str, inspect_folder(folder).problems))


def test_images_without_usable_edges_are_counted(tmp_path: Path) -> None:
    folder = make_edged(tmp_path, {"train": 3, "val": 2})
    Image.fromarray(np.full((32, 32), 255, np.uint8)).save(folder / "edges/train/001.png")
    for path in folder.glob("images/val/*.png"):
        path.write_bytes(b"nothing")
    problems = inspect_folder(folder).problems
    assert [(problem.severity, problem.message) for problem in problems if "left out" not in problem.message] == [
        ("warning", "In 1 of 3 training images, more than half of the pixels are edges."),
        ("error", "None of the validation images can be used."),
    ]


def test_masks_are_read_as_edges(tmp_path: Path) -> None:
    task = TASKS["edge_detection"]
    discs = make_masked(tmp_path / "discs", {"train": 2, "val": 2}, 32)
    for path in discs.glob("masks/*/*.png"):
        mask = np.asarray(Image.open(path)).copy()
        mask[[0, -1]] = mask[:, [0, -1]] = 255
        save_mask(path, mask)
    several = task.open_splits(Job.from_fields(task="edge_detection", dataset=str(discs)))
    assert (several.classes, several.train.planes) == (("edge",), 2)
    bits = load_planes(several.train, 0)[4]
    assert ndimage.label(bits[1:] == 0)[1] == 2, "the rim of the disc is closed"
    assert bits.sum() < 100
    beside_no_class = (bits[1], bits[30], bits[:, 1], bits[:, 30])
    assert max((line > 0).double().mean() for line in beside_no_class) < 0.5
    for path in discs.glob("masks/*/*.png"):
        lines = np.zeros((32, 32), np.uint8)
        lines[10, 3:29] = 1
        Image.fromarray(lines).save(path)
    of_lines = task.open_splits(Job.from_fields(task="edge_detection", dataset=str(discs)))
    share, bits = load_planes(of_lines.val, 1)[3:]
    np.testing.assert_array_equal(bits, lines)
    np.testing.assert_array_equal(share, lines * FULL)
    masked: Any = TASKS["segmentation"].open_splits(Job.from_fields(task="segmentation", dataset=str(discs))).train
    assert len({EdgesOfMasks(masked, classes).cache_key for classes in (2, 3)}) == 2


def test_annotators_are_preferred_to_mean_images(tmp_path: Path) -> None:
    """Check that the maps of individual annotators are preferred to their mean, in a folder like BSDS500's."""
    make_edged(tmp_path, {"train": 3, "val": 2}, matlab=True)
    for path in tmp_path.glob("groundTruth/*/*.mat"):
        drawn = read_edges(str(path))
        place = tmp_path / "edges" / path.parent.name / f"{path.stem}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.round(drawn.layers.mean(0) * 255).astype(np.uint8)).save(place)
    recognized = recognize_folder(tmp_path)
    assert {name[1].rpartition(".")[2] for name in names(recognized.train)} == {"mat"}
    assert (len(names(recognized.train)), len(names(recognized.val)), recognized.problems) == (3, 2, ())
    assert drawn.layers.shape == (2, 32, 32)


@pytest.mark.skipif(not BSDS.is_dir(), reason="needs bsds500_subset")
def test_bsds500_is_read() -> None:
    recognized = recognize_folder(BSDS)
    assert names(recognized.train)[0][1].endswith(".mat")
    assert (len(names(recognized.train)), len(names(recognized.val)), recognized.problems) == (30, 10, ())
    assert isinstance(recognized.val, EdgeSplit)
    path = Path(recognized.val.edges[0])
    drawn = read_edges(str(path))
    mean = np.asarray(Image.open(BSDS / "edges/val" / f"{path.stem}.png"))
    assert np.abs(drawn.layers.mean(0) * 255 - mean).max() <= 1


@pytest.mark.parametrize("variant", edges_writer.VARIANTS)
def test_read_returns_the_truth(tmp_path: Path, variant: str) -> None:
    edges_writer.write(TRUTH, tmp_path, variant)
    tree = Tree(str(tmp_path))
    (detection,) = FORMAT.detect(tree)
    certain = Confidence.CERTAIN if variant == "bsds" else Confidence.LIKELY
    assert (detection.confidence, detection.against, detection.variant) == (certain, (), "")
    content = FORMAT.read(tree, detection, "edges")
    assert (content.classes, content.problems) == (("edge",), [])
    edges_by_image = {}
    for split in content.splits.values():
        for image, path in zip(split.files, split.edges, strict=True):
            edges_by_image[Path(image).stem] = read_edges(path).layers[0]
    assert set(content.splits) == ({""} if variant == "plain" else {"train", "val"})
    assert edges_by_image.keys() == {image.name for image in TRUTH.images}
    for image in TRUTH.images:
        np.testing.assert_array_equal(edges_by_image[image.name], edges_writer.find_outline(image))


@pytest.mark.parametrize("name", ["edges", "boundary", "contours"])
def test_detect_doubts_areas_in_place_of_lines(tmp_path: Path, name: str) -> None:
    for image in TRUTH.images:
        image.save(tmp_path / f"images/{image.name}.png")
        areas = np.pad(np.where(image.draw_mask() > 0, 255, 0).astype(np.uint8), 40)
        save_mask(tmp_path / f"{name}/{image.name}.png", areas)
    (detection,) = FORMAT.detect(Tree(str(tmp_path)))
    assert detection.confidence is Confidence.WEAK
    assert detection.against == ("areas rather than thin lines in the files of edges",)
    assert detection.evidence == (f"{len(TRUTH.images)} images with edges in {name}",)
    for image in TRUTH.images:
        (tmp_path / f"{name}/{image.name}.png").write_bytes(b"nothing")
    (tmp_path / "images").joinpath(f"{TRUTH.images[0].name}.png").unlink()
    (detection,) = FORMAT.detect(Tree(str(tmp_path)))
    assert detection.against == ("files of edges that can't be opened",)


@pytest.mark.parametrize(("areas", "confidence"), [(1, Confidence.LIKELY), (2, Confidence.WEAK)])
def test_detect_doubts_edges_if_half_of_them_are_areas(tmp_path: Path, areas: int, confidence: Confidence) -> None:
    make_edged(tmp_path, {"": 4})
    for number in range(areas):
        save_mask(tmp_path / f"edges/{number:03}.png", np.pad(np.full((20, 6), 255, np.uint8), ((6, 6), (13, 13))))
    (detection,) = FORMAT.detect(Tree(str(tmp_path)))
    assert detection.confidence is confidence


@pytest.mark.parametrize(("others", "confidence"), [(3, Confidence.LIKELY), (4, Confidence.WEAK)])
def test_detect_doubts_edges_that_are_mostly_without_images(
    tmp_path: Path, others: int, confidence: Confidence
) -> None:
    make_edged(tmp_path, {"": 3 + others})
    for number in range(others):
        (tmp_path / f"images/{number:03}.png").unlink()
    (detection,) = FORMAT.detect(Tree(str(tmp_path)))
    objections = (f"{others} files of edges without an image",) if confidence is Confidence.WEAK else ()
    assert (detection.confidence, detection.against) == (confidence, objections)


def test_detect_prefers_the_files_of_all_annotators(tmp_path: Path) -> None:
    make_edged(tmp_path, {"train": 3, "val": 2})
    make_edged(tmp_path, {"train": 3, "val": 2}, matlab=True)
    assert [each.variant for each in FORMAT.detect(Tree(str(tmp_path)))] == ["groundTruth", "edges"]


@pytest.mark.parametrize("name", ["edges", "Ground Truth", "groundtruth", "boundaries"])
def test_detect_doubts_files_without_any_edge(tmp_path: Path, name: str) -> None:
    for image in TRUTH.images:
        image.save(tmp_path / f"images/{image.name}.png")
        save_mask(tmp_path / f"{name}/{image.name}.png", image.draw_mask())  # classes 0 to 3, nearly black
    (detection,) = FORMAT.detect(Tree(str(tmp_path)))
    assert (detection.confidence, len(detection.against)) == (Confidence.WEAK, 1)
