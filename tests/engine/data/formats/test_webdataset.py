"""WebDataset: tar files of images and classes."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace

import pytest

from engine.data.formats.registry import recognize
from engine.data.formats.shared.unpacking import choose_file_name, unpack_once
from engine.data.formats.tree import Tree
from engine.data.formats.webdataset import FORMAT, iterate_samples
from engine.system.regular_files import UnusableFile
from tests.support.dataset_formats import webdataset
from tests.support.dataset_formats.archives import encode_png
from tests.support.dataset_formats.truth import TRUTH
from tests.support.read_formats import list_annotations_by_split, read_once


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an empty folder Footplate's cache folder, and return it."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FOOTPLATE_CACHE", str(folder))
    return folder


def write(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, text in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return path


def test_webdataset_writes_nothing_outside_the_cache(tmp_path: Path, cache: Path) -> None:
    image = encode_png(TRUTH.images[0])
    names = ("../../evil", "/tmp/absolute", "a/b", "c/b", "w\\windows", "ü", ".hidden/x")
    members = {f"{name}.{ending}": image if ending == "png" else b"x" for name in names for ending in ("png", "cls")}
    write(tmp_path / "shard-000000.tar", members)
    found = read_once(FORMAT, tmp_path, "classes")
    files = list(found.splits[""].files)
    assert len(files) == len(set(files)) == len(names)
    assert all(Path(file).resolve().is_relative_to(cache.resolve()) for file in files)
    assert not (tmp_path.parent / "evil.png").exists()


def test_webdataset_uses_the_first_image_of_a_sample(tmp_path: Path) -> None:
    image, other = map(encode_png, TRUTH.images[:2])
    members = {"a.png": image, "a.mask.png": other, "a.cls": b"1", "b.cls": b"0", "c.png": other, "c.cls": b"0"}
    members |= {"d.png": b"", "d.cls": b"0", "e.png": image, "e.cls": b" "}
    write(tmp_path / "x-0.tar", members)
    found = read_once(FORMAT, tmp_path, "classes")
    assert list_annotations_by_split(found) == {"": {"a": "1", "c": "0"}}
    assert [Path(file).read_bytes() for file in found.splits[""].files] == [image, other]
    assert "2 samples without an image" in found.problems[0].message
    (tmp_path / "classes.txt").write_text("owl\nant\n")
    assert read_once(FORMAT, tmp_path, "classes").classes == ("owl", "ant")


@pytest.mark.parametrize(
    ("labels", "kinds"),
    [
        ({"a.cls": b"1", "b.cls": b"0", "c.cls": b"0"}, ("classes", "labels")),
        ({"a.cls": b"1", "b.cls": b"0"}, ("classes", "labels")),
        ({"a.cls": b"1"}, None),
        ({"a.json": b'{"label": true}', "b.json": b'{"label": []}', "c.json": b"{torn"}, None),
        ({"a.json": b'{"label": true}', "b.json": b'{"label": false}'}, None),
        ({"a.json": b"{torn", "b.json": b'{"labels": ["x", "y"]}', "c.json": b'{"cls": 3}'}, ("labels",)),
    ],
)
def test_webdataset_needs_classes_of_half_the_images(
    tmp_path: Path, labels: dict[str, bytes], kinds: tuple[str, ...] | None
) -> None:
    image = encode_png(TRUTH.images[0])
    members = {f"{name}.png": image for name in "abcd"} | labels
    write(tmp_path / "x-0.tar", dict(sorted(members.items())))
    assert [each.kinds for each in FORMAT.detect(Tree(str(tmp_path)))] == ([] if kinds is None else [kinds])


def test_webdataset_takes_splits_from_the_names_of_files(tmp_path: Path) -> None:
    for name, extension in (("train-0", "tar"), ("train-1", "TAR"), ("val-0", "tgz")):
        write(tmp_path / f"{name}.{extension}", {f"{name}.png": encode_png(TRUTH.images[0]), f"{name}.cls": b"1"})
    (tmp_path / "labels.csv.gz").write_bytes(b"no tar file")
    found = list_annotations_by_split(read_once(FORMAT, tmp_path, "classes"))
    assert {split: len(images) for split, images in found.items()} == {"train": 2, "val": 1}


@pytest.mark.parametrize("text", [b"", b"no tar file" * 100, b"\x1f\x8b torn"])
def test_webdataset_names_a_torn_tar_file(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "x.tar").write_bytes(text)
    assert FORMAT.detect(Tree(str(tmp_path))) == []
    with pytest.raises(UnusableFile) as caught:
        list(iterate_samples(str(tmp_path / "x.tar")))
    assert caught.value.path == str(tmp_path / "x.tar")


@pytest.mark.parametrize(
    ("size", "headers", "reason"),
    [(1, {"GNU.sparse.map": "x,y"}, "is not a readable tar file"), (1 << 60, {}, "has a member of 1,152")],
)
def test_webdataset_with_a_senseless_header_is_unusable(
    tmp_path: Path, size: int, headers: dict[str, str], reason: str
) -> None:
    member = tarfile.TarInfo("a.png")
    member.size, member.pax_headers = size, headers
    path = tmp_path / "x.tar"
    path.write_bytes(member.tobuf(tarfile.PAX_FORMAT) + bytes(2 * tarfile.BLOCKSIZE))
    assert FORMAT.detect(Tree(str(tmp_path))) == []
    with pytest.raises(UnusableFile) as caught:
        list(iterate_samples(str(path)))
    assert caught.value.reason.startswith(reason)


def test_webdataset_torn_after_its_start_is_named(tmp_path: Path) -> None:
    webdataset.write(TRUTH, tmp_path, "plain")
    path = tmp_path / "shard-000001.tar"
    os.truncate(path, path.stat().st_size - 20_000)
    found = recognize(str(tmp_path), val_fraction=0.2, seed=0)
    assert any("shard-000001.tar" in problem.message for problem in found.problems)


def test_webdataset_of_captions_is_no_classification(tmp_path: Path) -> None:
    write(tmp_path / "x-0.tar", {"a.png": encode_png(TRUTH.images[0]), "a.txt": b"a thing"})
    assert FORMAT.detect(Tree(str(tmp_path))) == []


def test_unpacked_folder_follows_the_archives(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    archive.write_bytes(b"1")
    first = unpack_once([str(archive)], lambda folder: (folder / "x").touch())
    assert unpack_once([str(archive)], lambda folder: pytest.fail("unpacked twice")) == first
    found = [first]
    for content, seconds in ((b"2", 1), (b"3", 2), (b"44", 2)):
        archive.write_bytes(content)
        os.utime(archive, (seconds, seconds))
        found.append(unpack_once([str(archive)], lambda folder: None))
    assert len(set(found)) == 4


def test_unpacking_needs_space_for_all_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archives = [write(tmp_path / name, {}) for name in ("a.tar", "b.tar")]
    needed = sum(path.stat().st_size for path in archives)
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: SimpleNamespace(free=needed))
    with pytest.raises(UnusableFile, match=f"need {needed:,} bytes in .*, where {needed:,} are free"):
        unpack_once(list(map(str, archives)), lambda folder: None)


@pytest.mark.parametrize("is_complete", [True, False])
def test_unpacking_leaves_the_folder_of_a_faster_process(tmp_path: Path, cache: Path, is_complete: bool) -> None:
    archive = write(tmp_path / "a.tar", {})

    def be_slow(partial: Path) -> None:
        folder = partial.parent / partial.name.split("-")[1]
        folder.mkdir()
        (folder / ("complete" if is_complete else "torn")).touch()

    with nullcontext() if is_complete else pytest.raises(OSError, match="not empty"):
        unpack_once([str(archive)], be_slow)
    (folder,) = (cache / "unpacked").iterdir()
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize(
    ("number", "failure"), [(errno.ENOTSUP, nullcontext()), (errno.EIO, pytest.raises(OSError, match="no locks"))]
)
def test_unpacking_does_without_locks_that_are_not_supported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, failure: AbstractContextManager[object]
) -> None:
    def refuse(_path: Path, _timeout_s: float) -> AbstractContextManager[None]:
        raise OSError(number, "no locks")

    monkeypatch.setattr("engine.data.formats.shared.unpacking.locked", refuse)
    with failure:
        assert unpack_once([str(write(tmp_path / "a.tar", {}))], lambda folder: None).is_dir()


@pytest.mark.parametrize("error", [UnusableFile("a.tar", "is torn"), OSError(errno.ENOSPC, ""), KeyboardInterrupt()])
def test_failed_unpacking_removes_its_files(tmp_path: Path, cache: Path, error: BaseException) -> None:
    archive = tmp_path / "a.tar"
    archive.write_bytes(b"1")

    def fail(folder: Path) -> None:
        (folder / "x").touch()
        raise error

    with pytest.raises(type(error)):
        unpack_once([str(archive)], fail)
    assert list((cache / "unpacked").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a/b.JPG", b"", "b.JPG"),
        ("", b"\xff\xd8\xff", "0000007.jpg"),
        ("b.bin", b"\x89PNG", "b.png"),
        ("..", b"GIF89a", "0000007.gif"),
        ("Taken.png", b"", "0000007-Taken.png"),
        ("x" * 99 + ".png", b"", "x" * 80 + ".png"),
    ],
)
def test_file_name_of_an_image_in_an_archive(name: str, content: bytes, expected: str) -> None:
    assert choose_file_name(name, content, 7, {"taken.png"}) == expected


def test_unpacked_unpacks_once_for_several_ranks(tmp_path: Path) -> None:
    archive = str(write(tmp_path / "x-0.tar", {"a.cls": b"0"}))
    started: list[Path] = []
    start = Barrier(4)

    def rank(_number: int) -> Path:
        start.wait()
        return unpack_once([archive], started.append)

    with ThreadPoolExecutor(4) as ranks:
        folders = set(ranks.map(rank, range(4)))
    assert len(folders) == len(started) == 1


def test_unpacked_removes_what_an_ended_process_left(tmp_path: Path, cache: Path) -> None:
    archive = str(write(tmp_path / "x-0.tar", {"a.cls": b"0"}))
    program = (
        "import os, sys; from engine.data.formats.shared.unpacking import unpack_once; "
        "unpack_once([sys.argv[1]], lambda folder: ((folder / 'x').touch(), os._exit(9)))"
    )
    assert subprocess.run([sys.executable, "-c", program, archive], check=False).returncode == 9
    assert list((cache / "unpacked").glob(".unpacking-*"))
    folder = unpack_once([archive], lambda folder: (folder / "y").touch())
    assert list((cache / "unpacked").iterdir()) == [folder]
    assert {path.name for path in folder.iterdir()} == {"y", "complete"}
