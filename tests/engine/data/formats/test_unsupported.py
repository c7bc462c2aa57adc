"""Datasets that are recognized but not supported."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from engine.data.formats.format import Confidence
from engine.data.formats.registry import recognize
from engine.data.formats.tree import Tree
from engine.data.formats.unsupported import FORMAT
from tests.support.dataset_formats import table
from tests.support.dataset_formats.pixels import save_mask
from tests.support.dataset_formats.truth import TRUTH


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


FILES = {
    "dicom": {"series/IM1.dcm": bytes(128) + b"DICM rest"},
    "nifti": {"case/volume.nii.gz": b"\x1f\x8b", "case/seg.nii": b"x"},
    "volumes": {"a.nrrd": b"NRRD0004"},
    "tfrecord": {"train.tfrecord": (4).to_bytes(8, "little") + bytes(4) + b"data" + bytes(4)},
    "arrow": {"train/data-00000-of-00001.arrow": b"ARROW1", "train/state.json": b"{}"},
    "npz": {"pathmnist.npz": b"PK\x03\x04"},
    "pickle": {"cifar-10-batches-py/data_batch_1": b"\x80\x02}", "cifar-10-batches-py/batches.meta": b"\x80\x02}"},
    "lmdb": {"train.lmdb/data.mdb": b"x", "train.lmdb/lock.mdb": b"x"},
    "hdf5": {"data.h5": b"\x89HDF\r\n\x1a\n"},
    "mat": {"annotations.mat": b"MATLAB 5.0 MAT-file, Platform: x"},
    "7z": {"images.7z": b"7z\xbc\xaf\x27\x1c rest"},
    "video": {"clips/a.mp4": b"x"},
}


@pytest.mark.parametrize("variant", FILES)
def test_unsupported_format_is_named(tmp_path: Path, variant: str) -> None:
    for name, content in FILES[variant].items():
        write(tmp_path / name, content)
    (detection,) = FORMAT.detect(Tree(str(tmp_path)))
    assert (detection.variant, detection.kinds) == (variant, ())
    assert detection.remedy
    found = recognize(str(tmp_path), val_fraction=0.2, seed=0)
    assert found.train is None
    assert detection.remedy in {problem.remedy for problem in found.problems}


def test_unsupported_dicom_without_endings(tmp_path: Path) -> None:
    write(tmp_path / "scan" / "IM000001", bytes(128) + b"DICM")
    (detection,) = FORMAT.detect(Tree(str(tmp_path)))
    assert detection.variant == "dicom"


@pytest.mark.parametrize("packed", ["zip", "tar"])
def test_unsupported_packed_images_are_to_be_unpacked(tmp_path: Path, packed: str) -> None:
    source = TRUTH.images[0].save(tmp_path / "away" / "a.png")
    folder = tmp_path / "data"
    folder.mkdir()
    if packed == "zip":
        with zipfile.ZipFile(folder / "images.zip", "w") as archive:
            archive.writestr("README.txt", "Images of apples")
            archive.write(source, "train/a.png")
    else:
        with tarfile.open(folder / "images.tar.gz", "w:gz") as tar:
            tar.add(source, "train/a.png")
    (detection,) = FORMAT.detect(Tree(str(folder)))
    assert detection.variant == packed
    assert "Unpack" in detection.remedy


def test_zip_whose_names_are_no_text_is_left_alone(tmp_path: Path) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("ä.png", b"")
    write(tmp_path / "images.zip", content.getvalue().replace("ä".encode(), b"\xff\xff"))
    assert FORMAT.detect(Tree(str(tmp_path))) == []


@pytest.mark.parametrize("base", ["", "train", "DAVIS"])
@pytest.mark.parametrize(("title", "name"), [("youtube-vos", "meta.json"), ("davis", "ImageSets/2017/train.txt")])
def test_unsupported_masks_of_videos(tmp_path: Path, title: str, name: str, base: str) -> None:
    quality = "480p/" if title == "davis" else ""
    for number, image in enumerate(TRUTH.images):
        image.save(tmp_path / base / "JPEGImages" / f"{quality}bear" / f"{number:05}.jpg")
        save_mask(tmp_path / base / "Annotations" / f"{quality}bear" / f"{number:05}.png", image.draw_mask())
    write(tmp_path / base / name, b"{}")
    assert title in [detection.variant for detection in FORMAT.detect(Tree(str(tmp_path)))]
    found = recognize(str(tmp_path), val_fraction=0.3, seed=0, kinds=("masks",))
    assert found.train is None
    assert "videos" in found.problems[0].remedy
    write(tmp_path / base / "Annotations/a.xml", b"")
    assert title not in [detection.variant for detection in FORMAT.detect(Tree(str(tmp_path)))]


def test_unsupported_run_lengths_of_kaggle(tmp_path: Path) -> None:
    for image in TRUTH.images:
        image.save(tmp_path / "train" / f"{image.name}.png")
    rows = "".join(f"{image.name}.png,1 3 10 5\n" for image in TRUTH.images)
    (tmp_path / "train.csv").write_text("ImageId,EncodedPixels\n" + rows)
    (detection,) = FORMAT.detect(Tree(str(tmp_path)))
    assert detection.variant == "rle"
    for cell in ("", "-1"):
        rows = "".join(f"{image.name}.png,{cell}\n" for image in TRUTH.images)
        (tmp_path / "train.csv").write_text("ImageId,EncodedPixels\n" + rows)
        assert FORMAT.detect(Tree(str(tmp_path))) == []


@pytest.mark.parametrize("name", ["notes.mat", "old.h5", "backup.zip", "a.tfrecord", "b.dcm"])
def test_unsupported_files_must_be_what_they_seem(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"something else")
    assert FORMAT.detect(Tree(str(tmp_path))) == []


@pytest.mark.parametrize("variant", ["hdf5", "video", "mat"])
def test_unsupported_files_next_to_a_dataset_do_not_matter(tmp_path: Path, variant: str) -> None:
    table.write(TRUTH, tmp_path, "single")
    for name, content in FILES[variant].items():
        write(tmp_path / name, content)
    found = recognize(str(tmp_path), val_fraction=0.3, seed=0)
    assert found.format == "table"
    assert found.train is not None


DATUMARO = (
    '{"dm_format_version":"1.0","media_type":2,"infos":{},"categories":{"label":{"labels":[]}},"items":[]}',
    '{"info": {}, "categories": {"label": {"labels": [{"name": "cat", "parent": ""}]}}, "items": []}',
    '{\n "info": {"author": "me"},\n "categories": {\n  "mask": {}\n },\n "items": []\n}',
)


@pytest.mark.parametrize("text", DATUMARO)
@pytest.mark.parametrize("place", ["annotations/default.json", "train.json"])
def test_unsupported_datumaro_is_named(tmp_path: Path, text: str, place: str) -> None:
    write(tmp_path / place, text.encode())
    for image in TRUTH.images:
        image.save(tmp_path / f"images/default/{image.name}.png")
    (detection,) = FORMAT.detect(Tree(str(tmp_path)))
    assert (detection.variant, detection.kinds) == ("datumaro", ())
    for kind in ("classes", "boxes"):
        found = recognize(str(tmp_path), val_fraction=0.2, seed=0, kinds=(kind,))
        assert found.train is None
        assert detection.remedy in {problem.remedy for problem in found.problems}


RECORD = (8).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("files", "confidences"),
    [
        ({"a.tfrecord": RECORD + bytes(16)}, [Confidence.CERTAIN]),
        ({"a.tfrecord": RECORD + bytes(15)}, []),
        ({"a.tfrecord": bytes(24)}, []),
        ({"a.tfrecord": bytes(24), "b.tfrecord": RECORD + bytes(16)}, [Confidence.CERTAIN]),
        ({"TRAIN.TFRECORD-00000-of-00001": RECORD + bytes(16)}, [Confidence.CERTAIN]),
        ({"a.png": b"", "x/train-00000-of-00001": RECORD + bytes(16)}, []),
        ({"x/train-00000-of-00001": RECORD + bytes(16)}, [Confidence.CERTAIN]),
        ({"a/b.tfrec": RECORD + bytes(16)}, [Confidence.CERTAIN]),
        ({"pets.record": RECORD + bytes(16)}, [Confidence.CERTAIN]),
        ({"x/notes": RECORD + bytes(16)}, []),
        ({"x/notes": b"text", "y/data_batch_1": b"\x80\x02"}, [Confidence.CERTAIN]),
        ({"a/1.png": b"", "b/x.h5": b"\x89HDF"}, [Confidence.WEAK]),
        ({"b/x.h5": b"\x89HDF"}, [Confidence.CERTAIN]),
        ({"a.csv": b"id,rle\n1,1 2 3 4\n2,\n3,-1\n"}, [Confidence.LIKELY]),
        ({"a.csv": b"id,rle\n1,1 2 3 4\n2,cat dog\n"}, []),
    ],
)
def test_unsupported_files_are_recognized_by_their_content(
    tmp_path: Path, files: dict[str, bytes], confidences: list[Confidence]
) -> None:
    for name, content in files.items():
        write(tmp_path / name, content)
    assert [each.confidence for each in FORMAT.detect(Tree(str(tmp_path)))] == confidences


@pytest.mark.parametrize(("member", "count"), [("a.png", 1), ("a.txt", 0)])
def test_packed_images_next_to_others_are_reported(tmp_path: Path, member: str, count: int) -> None:
    (tmp_path / "b.png").touch()
    (tmp_path / "0.tar").write_bytes(b"torn")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        info = tarfile.TarInfo(member)
        info.size = 3
        archive.addfile(info, io.BytesIO(b"abc"))
    assert len(FORMAT.detect(Tree(str(tmp_path)))) == count
