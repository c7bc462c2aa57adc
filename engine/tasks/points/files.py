"""Read point cloud files for prediction, and write them with a predicted class per point."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from engine.contract.images import Preprocessing
from engine.contract.job import Job
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.splits import Labels
from engine.system.regular_files import open_regular
from engine.tasks.base import FileSamples, SampleFiles
from engine.tasks.points.decoding.clouds import is_cloud, is_las, read_chunks, read_head
from engine.tasks.points.decoding.fields import LABELS
from engine.tasks.points.samples import UnlabeledClouds
from engine.tasks.predictions import PointClasses

NEVER_CLASSIFIED = 0
"""ASPRS class for points that were never classified."""
MAX_LEGACY_CLASS = 31
"""Largest class number that fits in LAS point formats 0 to 5 (LAS 1.4, table 8)."""
MAX_CLASS = 255
"""Largest class number that fits in LAS point formats 6 and later."""
EXTRA_DIMENSION = "predicted"
"""Name of the additional dimension for classes that do not fit in the standard dimension of a LAS file."""
LABEL_PROPERTY = "label"
"""Name of the property for the predicted classes in a PLY file whose points had no labels."""
COLORS = ("red", "green", "blue")


class CloudFiles(SampleFiles):
    """Reader and writer for point clouds.

    Predictions for LAS and PLY files keep the file type. Those for other files are written as PLY.
    """

    noun = "point cloud (PLY, LAS, LAZ, PCD, a table or a scan)"

    def can_read(self, path: str) -> bool:
        return is_cloud(path)

    def open(self, file: str, preprocessing: Preprocessing, job: Job) -> tuple[FileSamples, int]:
        return UnlabeledClouds(file, preprocessing, job.data.points), read_head(file).points

    def get_output_extension(self, source: str) -> str:
        extension = Path(source).suffix
        return extension if is_las(source) or extension.lower() == ".ply" else ".ply"

    def write(self, source: str, target: Path, predicted: PointClasses, values: tuple[int, ...]) -> None:
        """Write a cloud with its predicted labels. LAS and PLY files keep their format, and others become PLY.

        `values` holds the label of each class. If it is empty, the labels are the class numbers.
        """
        label_of_class = np.array(values or range(len(predicted.classes)), np.int64)
        has_class = predicted.numbers != NO_CLASS
        labels = np.where(
            has_class,
            label_of_class[np.where(has_class, predicted.numbers, 0)],
            NEVER_CLASSIFIED if is_las(source) else -1,
        )
        if is_las(source):
            _write_las(source, target, labels)
        elif source.lower().endswith(".ply"):
            _write_ply(source, target, labels)
        else:
            _convert_to_ply(source, target, labels)


def _write_las(source: str, target: Path, labels: Labels) -> None:
    """Copy a LAS file with labels as its classification.

    If a label is too large for the classification (above `MAX_LEGACY_CLASS` in point formats 0 to 5, or `MAX_CLASS` in
    later ones), the classification doesn't change, and all labels are written to the additional dimension
    `EXTRA_DIMENSION` instead. This dimension of an earlier prediction is removed.
    """
    import laspy

    with open_regular(source) as stream:
        cloud = laspy.read(stream, closefd=False)
    if EXTRA_DIMENSION in cloud.point_format.extra_dimension_names:
        cloud.remove_extra_dim(EXTRA_DIMENSION)
    # Point formats from 6 on store the class in a full byte.
    max_class = MAX_LEGACY_CLASS if cloud.header.point_format.id < 6 else MAX_CLASS
    if labels.max(initial=0) > max_class:
        dtype = np.uint8 if labels.max() <= MAX_CLASS else np.int32
        cloud.add_extra_dim(laspy.ExtraBytesParams(EXTRA_DIMENSION, dtype, "Predicted class"))
        cloud[EXTRA_DIMENSION] = labels.astype(dtype)
    else:
        cloud.classification = labels.astype(np.uint8)
    with target.open("wb") as written:
        cloud.write(written, do_compress=source.lower().endswith(".laz"))


def _write_ply(source: str, target: Path, labels: Labels) -> None:
    """Copy a PLY file with new labels.

    If the points have a property for labels, its values are replaced, and its type doesn't change. Otherwise, the
    property `LABEL_PROPERTY` is added.
    """
    from plyfile import PlyData, PlyElement

    with open_regular(source) as stream:
        cloud = PlyData.read(stream, mmap=False)
    elements = []
    for element in cloud.elements:
        if element.name != "vertex":
            elements.append(element)
            continue
        points = element.data
        by_lower_name = {name.lower(): name for name in reversed(points.dtype.names)}
        label_name = next((by_lower_name[name] for name in LABELS if name in by_lower_name), None)
        if label_name is None:
            label_name = LABEL_PROPERTY
            fields = [(name, points.dtype[name]) for name in points.dtype.names]
            with_label = np.empty(len(points), [*fields, (label_name, "<i4")])
            for name in points.dtype.names:
                with_label[name] = points[name]
            points = with_label
        points[label_name] = labels.astype(points.dtype[label_name])
        elements.append(PlyElement.describe(points, "vertex", comments=element.comments))
    PlyData(
        elements, text=cloud.text, byte_order=cloud.byte_order, comments=cloud.comments, obj_info=cloud.obj_info
    ).write(str(target))


def _convert_to_ply(source: str, target: Path, labels: Labels) -> None:
    """Write a cloud of another file type as PLY, with `labels` and without the points that have no position."""
    from plyfile import PlyData, PlyElement

    features = read_head(source).features
    chunks = zip(*read_chunks(source, features, with_labels=False), strict=True)
    positions, columns, _, rows = (np.concatenate(each) for each in chunks)
    types = {name: "u1" if name in COLORS else "<f4" for name in features}
    points = np.empty(len(rows), [*((axis, "<f8") for axis in "xyz"), *types.items(), (LABEL_PROPERTY, "<i4")])
    for index, axis in enumerate("xyz"):
        points[axis] = positions[:, index]
    for index, name in enumerate(features):
        column = np.nan_to_num(columns[:, index])
        points[name] = column.clip(0, 255) if name in COLORS else column
    points[LABEL_PROPERTY] = labels[rows]
    PlyData([PlyElement.describe(points, "vertex")], byte_order="<").write(str(target))
