"""Datasets that Footplate recognizes but can't read, with advice on converting them. Torch-free."""

from __future__ import annotations

import itertools
import os
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from engine.data.decoding.image_files import EXTENSIONS, is_image
from engine.data.decoding.reading import read_head
from engine.data.formats.format import Confidence, Detection, Format
from engine.data.formats.shared.tables import find_tables, format_table_path, open_table
from engine.data.formats.tree import Tree
from engine.data.formats.webdataset import find_archives, iterate_samples
from engine.data.splits import printable
from engine.system.format import counted
from engine.system.regular_files import UnusableFile, open_regular

LAYOUT = "Convert the dataset to a format that Footplate reads."
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
_DEPTH = 4
_MAX_FOLDERS = 500  # folders that are searched


@dataclass(frozen=True)
class _UnsupportedFormat:
    """Unsupported format that is recognized by the extensions of its files.

    Attributes:
        variant: Name of the detection.
        title: Name in messages.
        endings: Extensions of the files with dots, including compound ones such as ".nii.gz".
        remedy: Advice on the conversion.
        has_format: Function that checks if a file, given by its full path, has this format, or None if no other format
            uses the same extensions.
    """

    variant: str
    title: str
    endings: tuple[str, ...]
    remedy: str
    has_format: Callable[[str], bool] | None = None


def _starts_with(*starts: bytes) -> Callable[[str], bool]:
    """Return a function that checks if a file begins with one of `starts`."""
    return lambda path: read_head(path).startswith(starts)


def _is_dicom(path: str) -> bool:
    """Return True if a file has the signature of DICOM, which follows 128 arbitrary bytes."""
    return read_head(path)[128:132] == b"DICM"


def _is_zip_of_images(path: str) -> bool:
    """Return True if a readable ZIP archive lists an image among its first files."""
    try:
        with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
            return any(is_image(name) for name in archive.namelist()[:1000])
    except Exception:
        return False  # a broken archive may raise nearly anything


def _is_tfrecord(path: str) -> bool:
    """Return True if a file begins like a TFRecord: with the length of a record that fits in the file."""
    head = read_head(path, 8)
    return len(head) == 8 and 0 < int.from_bytes(head, "little") <= os.stat(path).st_size - 16


_FORMATS = (
    _UnsupportedFormat(
        "dicom", "DICOM", (".dcm", ".dicom"),
        "Convert the slices to 16-bit PNG or TIFF, for example with dcmj2pnm of DCMTK (dcmj2pnm +on2), or export them from 3D "
        "Slicer.",
        _is_dicom,
    ),
    _UnsupportedFormat(
        "nifti", "NIfTI", (".nii", ".nii.gz"),
        "Export the slices of the volumes and their masks as PNG or TIFF into the folders images and masks, for example with "
        "med2image or 3D Slicer.",
    ),
    _UnsupportedFormat(
        "volumes", "medical volumes", (".mha", ".mhd", ".nrrd"),
        "Export the slices of the volumes and their masks as PNG or TIFF, for example with 3D Slicer or SimpleITK.",
    ),
    _UnsupportedFormat(
        "arrow", "Arrow files of Hugging Face's save_to_disk", (".arrow",),
        "Save it as Parquet: datasets.load_from_disk(FOLDER), then to_parquet for each split.",
        _starts_with(b"ARROW1", b"\xff\xff\xff\xff"),
    ),
    _UnsupportedFormat(
        "npz", "arrays of numpy", (".npz",),
        "Save the images as PNG into a folder for each class, for example with numpy and Pillow; MedMNIST's own method save "
        "does it for its data.",
        _starts_with(b"PK"),
    ),
    _UnsupportedFormat(
        "pickle", "pickled arrays", (".pkl", ".pickle"),
        "Save the images as PNG into a folder for each class; for CIFAR, torchvision reads the batches.",
        _starts_with(b"\x80"),
    ),
    _UnsupportedFormat(
        "tfrecord", "TFRecord", (".tfrecord", ".tfrecords", ".tfrec", ".record"),
        "Export the images and annotations again as COCO JSON or Pascal VOC (Roboflow and Datumaro convert TFRecord), or read "
        "them with TensorFlow and save the images into a folder for each class.",
        _is_tfrecord,
    ),
    _UnsupportedFormat(
        "lmdb", "LMDB", (".mdb",),
        "Write the images of the database into files, for example with the lmdb package or the export script of its dataset.",
    ),
    _UnsupportedFormat(
        "hdf5", "HDF5", (".h5", ".hdf5", ".he5", ".hdf"),
        "Save the arrays as PNG or TIFF files, for example with h5py and Pillow, into a folder for each class or into images "
        "and masks.",
        _starts_with(b"\x89HDF"),
    ),
    _UnsupportedFormat(
        "recordio", "MXNet RecordIO", (".rec",),
        "Unpack the images, for example with mxnet's im2rec tools, into a folder for each class.",
        _starts_with(b"\x0a\x23\xd7\xce"),
    ),
    _UnsupportedFormat(
        "mat", "MATLAB annotations", (".mat",),
        "Write the annotations as COCO JSON, or the classes as a labels.csv: scipy.io.loadmat reads .mat files.",
        _starts_with(b"MATLAB 5.0 MAT-file", b"MATLAB 7.3 MAT-file"),
    ),
    _UnsupportedFormat(
        "zip", "packed images", (".zip",),
        "Unpack the archive, and choose the folder with its contents.",
        _is_zip_of_images,
    ),
    _UnsupportedFormat(
        "7z", "packed images", (".7z", ".rar"),
        "Unpack the archive, and choose the folder with its contents.",
        _starts_with(b"7z\xbc\xaf\x27\x1c", b"Rar!"),
    ),
    _UnsupportedFormat(
        "video", "videos", (".mp4", ".avi", ".mov", ".mkv", ".webm"),
        "Extract frames into a folder of images and annotate them: ffmpeg -i video.mp4 -vf fps=1 frames/%06d.jpg.",
    ),
)  # fmt: skip

_TAR = _UnsupportedFormat("tar", "packed images", (), "Unpack the archives, and choose the folder with their contents.")
_PEEKED = 60  # JSON files in a folder, or members of a tar file, that are read
_PEEKED_ARCHIVES = 3
_DATUMARO = re.compile(
    rb'\s*\{\s*("dm_format_version"|"info"\s*:\s*\{.{0,400}\}\s*,\s*"categories"\s*:\s*\{)', re.DOTALL
)
"""Pattern for the beginning of a Datumaro JSON file. Its categories are a mapping, while those of COCO are a list."""


def _detect(tree: Tree) -> list[Detection]:
    """Detect datasets in unsupported formats, the most likely first. Each detection has advice on the conversion."""
    images = 0
    paths_by_variant: dict[str, list[str]] = {}
    folders = list(itertools.islice(tree.walk(depth=_DEPTH), _MAX_FOLDERS))
    for folder in folders:
        suffixes = tree.suffixes(folder)
        images += sum(suffixes[ending] for ending in EXTENSIONS)
        present_endings = {_SHARD.sub("", suffix) for suffix in suffixes}  # ".tfrecord-00000-of-00010"
        for format in _FORMATS:
            last_endings = {os.path.splitext(ending)[1] or ending for ending in format.endings}  # ".gz" for ".nii.gz"
            if last_endings.isdisjoint(present_endings):  # avoids handling each name
                continue
            names = [name for name in tree.files(folder) if _SHARD.sub("", name.lower()).endswith(format.endings)]
            paths_by_variant.setdefault(format.variant, []).extend(os.path.join(folder, name) for name in names)
    found: list[Detection] = []
    for format in _FORMATS:
        paths = paths_by_variant.get(format.variant, [])
        if paths and (format.has_format is None or any(format.has_format(tree.path(path)) for path in paths[:5])):
            found.append(_make_refusal(format, paths, images))
    if not images and not found:  # nothing with an extension shows what the folder contains
        found += _detect_without_ending(tree, folders)
    found += [
        *detect_videos(tree),
        *_detect_run_lengths(tree),
        *_detect_datumaro(tree),
        *_detect_archives(tree, images),
    ]
    return sorted(found, key=lambda detection: -detection.confidence)


def _make_refusal(format: _UnsupportedFormat, paths: list[str], images: int) -> Detection:
    """Return a detection for files in an unsupported format. `images` is the number of images in the folder.

    The detection is weak if there are images, since the user may only need these.
    """
    evidence = (f"{counted(len(paths), 'file')} of {format.title}, such as {printable(paths[0])}",)
    if images:
        return Detection((), Confidence.WEAK, evidence, (f"{images:,} images",), format.variant, format.remedy)
    return Detection((), Confidence.CERTAIN, evidence, variant=format.variant, remedy=format.remedy)


def _detect_without_ending(tree: Tree, folders: list[str]) -> Iterator[Detection]:
    """Yield a detection for the first of the `folders` with known files that have no extension.

    These are DICOM files from scanners, TFRecord shards, or batches of CIFAR.
    """
    by_variant = {format.variant: format for format in _FORMATS}
    for folder in folders:
        names = [name for name in tree.files(folder) if "." not in name] if tree.suffixes(folder)[""] else []
        if not names:
            continue
        paths = [os.path.join(folder, name) for name in names]
        first = tree.path(paths[0])
        if _is_dicom(first):
            variant = "dicom"
        elif _SHARD.search(names[0]) and _is_tfrecord(first):
            variant = "tfrecord"
        elif read_head(first).startswith(b"\x80"):
            variant = "pickle"
        else:
            continue
        yield _make_refusal(by_variant[variant], paths, images=0)
        return


def detect_videos(tree: Tree) -> Iterator[Detection]:
    """Yield a detection for masks of videos as in DAVIS and YouTube-VOS, or nothing for other folders.

    The dataset may be in the folder itself or in one of its subfolders, as created for a split or by an archive.
    """
    for base in tree.walk(depth=1):
        annotations = os.path.join(base, "Annotations")
        if not {"JPEGImages", "Annotations"} <= set(tree.folders(base)) or tree.has(".xml", annotations):
            continue
        is_vos = "meta.json" in tree.files(base, ".json")
        is_davis = "ImageSets" in tree.folders(base) and any(
            name in tree.folders(annotations) for name in ("480p", "Full-Resolution", "1080p")
        )
        if is_vos or is_davis:
            title = "YouTube-VOS" if is_vos else "DAVIS"
            remedy = (
                "Footplate does not follow objects through videos. To learn masks of single frames, copy the frames to images "
                "and the annotations to masks, each under the same name."
            )
            evidence = (f"JPEGImages and Annotations of {title}, a folder for each video",)
            yield Detection((), Confidence.CERTAIN, evidence, variant=title.lower(), remedy=remedy)
            return


def _detect_run_lengths(tree: Tree) -> Iterator[Detection]:
    """Detect tables with run-length encoded masks, as used by Kaggle."""
    for folder, name in find_tables(tree, (".csv",)):
        table = open_table(tree.path(folder, name), head=True)
        if table is None:
            continue
        run_columns = ("encoded_pixels", "rle_mask", "rle", "annotation", "segmentation")
        column = next(
            (table.normalized_names.index(each) for each in run_columns if each in table.normalized_names), None
        )
        if column is None:
            continue
        cells = [row[column] for row in table.sample(50) if row[column] not in ("", "-1")]
        are_runs = all(len(cell.split()) > 1 and cell.replace(" ", "").isdigit() for cell in cells)
        if cells and are_runs:
            remedy = "Draw the run lengths into masks, PNG files with 0 and the class in a folder masks next to the folder images."
            column_name = printable(table.head[column])
            evidence = (f"{format_table_path(table, tree)} with masks as run lengths in {column_name}",)
            yield Detection((), Confidence.LIKELY, evidence, variant="rle", remedy=remedy)
            return


def _detect_datumaro(tree: Tree) -> Iterator[Detection]:
    """Detect files in Datumaro format, which CVAT also exports."""
    for folder in ("annotations", ""):
        if folder and folder not in tree.folders():
            continue
        for name in tree.files(folder, ".json")[:_PEEKED]:
            if _DATUMARO.match(read_head(tree.path(folder, name), 1000)):
                remedy = (
                    "Export it as COCO, in CVAT or with datum convert -if datumaro -i FOLDER -f coco_instances -o OUT -- "
                    "--save-media."
                )
                evidence = (f"{printable(os.path.join(folder, name))} of Datumaro",)
                yield Detection((), Confidence.CERTAIN, evidence, variant="datumaro", remedy=remedy)
                return


def _detect_archives(tree: Tree, images: int) -> Iterator[Detection]:
    """Detect tar files of images without classes, and any tar files in a folder without images.

    `images` is the number of images in the folder. Only the beginnings of the first tar files are read, and yield at
    most one detection.
    """
    archives = find_archives(tree)
    for path in archives[:_PEEKED_ARCHIVES]:
        try:
            peeked = list(iterate_samples(tree.path(path), at_most=_PEEKED))
        except (OSError, UnusableFile):
            continue
        if any(sample.labels and sample.has_image for sample in peeked):
            return  # images with classes, which webdataset.py reads
        if not images or any(sample.has_image for sample in peeked):
            yield _make_refusal(_TAR, archives, images)
            return


FORMAT = Format("unsupported", "data of an unsupported format", (), LAYOUT, _detect)
