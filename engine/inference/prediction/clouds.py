"""Point clouds with a predicted class per point, everything else in them as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from engine.data.datasets.images import UnreadableImage
from engine.data.datasets.unlabelled_clouds import UnlabelledClouds
from engine.data.decoding.masks import NO_CLASS
from engine.data.decoding.point_clouds import is_las, read_head, read_parts
from engine.data.decoding.point_fields import LABELS
from engine.data.splits import Labels
from engine.inference.sweep import sweep
from engine.inference.trained_model import TrainedModel
from engine.system.regular_files import open_regular
from engine.tasks.predictions import PointClasses, PointScores

NEVER = 0
"""ASPRS's class of a point that was never classified."""
MOST_LEGACY = 31
"""The largest class that LAS point formats 0 to 5 can hold (LAS 1.4, table 8)."""
EXTRA = "predicted"
"""The dimension of classes that a LAS file's own can't hold."""
LABEL = "label"
"""The property of a PLY file's points that had none."""
COLORS = ("red", "green", "blue")


def predict_cloud(model: TrainedModel, file: str, batch_size: int) -> PointClasses:
    """The class of each point of a file: each point goes through the model once. Raises UnreadableImage."""
    samples = UnlabelledClouds(file, model.preprocessing, model.job.points)
    count = read_head(file).points
    numbers, probability = np.full(count, NO_CLASS, np.uint8), np.zeros(count, np.float32)
    failed: list[str] = []
    for swept in sweep(model, samples, batch_size=batch_size, on_unreadable=lambda path, reason: failed.append(reason)):
        for sample, output in zip(swept.samples.tolist(), swept.outputs.cpu(), strict=True):
            scores = model.objective.scores(output, 0)
            assert isinstance(scores, PointScores)
            best = scores.probabilities.max(0)
            rows, own = samples.points_of(sample)
            numbers[rows[own]] = best.indices.numpy()[own]
            probability[rows[own]] = best.values.numpy()[own]
    if failed:
        raise UnreadableImage(file, failed[0])
    return PointClasses(classes=model.classes, numbers=numbers, probability=probability)


def written_ending(source: str) -> str:
    """Return the ending of the file with predictions for `source`: its own if LAS or PLY, else that of PLY."""
    ending = Path(source).suffix
    return ending if is_las(source) or ending.lower() == ".ply" else ".ply"


def write_cloud(source: str, target: Path, found: PointClasses, values: tuple[int, ...]) -> None:
    """Write the cloud of `source` with its predicted classes.

    Args:
        source: File that was predicted for.
        target: File to write, of the type of `written_ending`.
        found: Predicted class of each point.
        values: Label of each class; empty for runs that did not save them, where labels are the classes' numbers.

    Raises:
        OSError: The file can't be written. Reading the source raises what its reader raises.
    """
    meaning = np.array(values or range(len(found.classes)), np.int64)
    known = found.numbers != NO_CLASS
    labels = np.where(known, meaning[np.where(known, found.numbers, 0)], NEVER if is_las(source) else -1)
    if is_las(source):
        _write_las(source, target, labels)
    elif source.lower().endswith(".ply"):
        _write_ply(source, target, labels)
    else:
        _convert_to_ply(source, target, labels)


def _write_las(source: str, target: Path, labels: Labels) -> None:
    """In the file's own classification, or where that can't hold them in a dimension "predicted"."""
    import laspy

    with open_regular(source) as stream:
        cloud = laspy.read(stream, closefd=False)
    if cloud.header.point_format.id < 6 and labels.max(initial=0) > MOST_LEGACY:
        cloud.add_extra_dim(laspy.ExtraBytesParams(EXTRA, np.uint8, "Predicted class"))
        cloud[EXTRA] = labels.astype(np.uint8)
    else:
        cloud.classification = labels.astype(np.uint8)
    with target.open("wb") as written:
        cloud.write(written, do_compress=source.lower().endswith(".laz"))


def _write_ply(source: str, target: Path, labels: Labels) -> None:
    """In the property that held labels, in its own type, or in a new one."""
    from plyfile import PlyData, PlyElement

    with open_regular(source) as stream:
        cloud = PlyData.read(stream, mmap=False)
    elements = []
    for element in cloud.elements:
        if element.name != "vertex":
            elements.append(element)
            continue
        points = element.data
        names = {name.lower(): name for name in reversed(points.dtype.names)}
        name = next((names[each] for each in LABELS if each in names), None)
        if name is None:
            name = LABEL
            wider = np.empty(len(points), [*((each, points.dtype[each]) for each in points.dtype.names), (name, "<i4")])
            for each in points.dtype.names:
                wider[each] = points[each]
            points = wider
        points[name] = labels.astype(points.dtype[name])
        elements.append(PlyElement.describe(points, "vertex", comments=element.comments))
    PlyData(
        elements, text=cloud.text, byte_order=cloud.byte_order, comments=cloud.comments, obj_info=cloud.obj_info
    ).write(str(target))


def _convert_to_ply(source: str, target: Path, labels: Labels) -> None:
    """Write the positions, features and labels of a cloud of another type, without points that have no position."""
    from plyfile import PlyData, PlyElement

    features = read_head(source).features
    parts = zip(*read_parts(source, features, labelled=False), strict=True)
    positions, columns, _, rows = (np.concatenate(each) for each in parts)
    types = {name: "u1" if name in COLORS else "<f4" for name in features}
    points = np.empty(len(rows), [*((axis, "<f8") for axis in "xyz"), *types.items(), (LABEL, "<i4")])
    for index, axis in enumerate("xyz"):
        points[axis] = positions[:, index]
    for index, name in enumerate(features):
        column = np.nan_to_num(columns[:, index])
        points[name] = column.clip(0, 255) if name in COLORS else column
    points[LABEL] = labels[rows]
    PlyData([PlyElement.describe(points, "vertex")], byte_order="<").write(str(target))
