"""Compact storage for the paths of many files."""

from __future__ import annotations

import os
import tracemalloc

import numpy as np
import pytest

from engine.data.files import CHUNK, Files, Listing, make_files

PATHS = ["/set/cat/1.png", "/set/cat/2.png", "/set/cat/deeper/a.png", "/set/dog/caf\udce9.png", "/set/dog/ä.png"]


@pytest.fixture
def files() -> Files:
    return Files.of(
        [
            Listing.of("/set/cat", ["1.png", "2.png"]),
            Listing.of("/set/cat/deeper", ["a.png"]),
            Listing.of("/set/cat/empty", []),
            Listing.of("/set/dog", ["caf\udce9.png", "ä.png"]),
        ]
    )


def test_files_return_paths_in_order(files: Files) -> None:
    assert list(files) == PATHS
    assert [files[index] for index in range(-5, 0)] == PATHS
    assert files[np.int64(3)] == PATHS[3]  # type: ignore[call-overload]
    assert len(files) == 5
    assert list(make_files([*PATHS, PATHS[0]])) == [*PATHS, PATHS[0]]


@pytest.mark.parametrize("index", [5, -6])
def test_files_index_out_of_range(files: Files, index: int) -> None:
    with pytest.raises(IndexError):
        files[index]


def test_iteration_matches_indexing() -> None:
    files = Files.of(Listing.of(f"/{folder}", [f"{folder}-{name}" for name in range(folder)]) for folder in range(150))
    assert len(files) > 2 * CHUNK
    for selection in (files, files[::-1], files.select(np.arange(len(files)) % 3 > 0)):
        assert list(selection) == [selection[index] for index in range(len(selection))]


def test_selections_can_be_nested(files: Files) -> None:
    assert list(files[1:4]) == PATHS[1:4]
    odd = files.select(np.array([True, False, True, False, True]))
    assert list(odd) == PATHS[::2]
    assert list(odd[::-1]) == PATHS[::-2]
    assert list(files[3:].join(files[:2])) == [*PATHS[3:], *PATHS[:2]]
    assert list(odd.select(np.array([False, True, True]))) == [PATHS[2], PATHS[4]]


def test_identity_depends_on_selection_and_not_on_root(files: Files) -> None:
    def identity(of: Files) -> bytes:
        return b"".join(map(bytes, of.identity("/set")))

    assert identity(files[1:4]) == identity(files[1:4])
    assert len({identity(selection) for selection in (files, files[1:4], files[:3], files[2:4])}) == 4
    halves = [Files.of([Listing.of("/set/a", "123"[:end]), Listing.of("/set/b", "123"[end:])]) for end in (1, 2)]
    assert identity(halves[0]) != identity(halves[1])
    copied = Files.of([Listing.of("/elsewhere/cat", ["1.png", "2.png"])])
    assert b"".join(map(bytes, copied.identity("/elsewhere"))) == identity(
        Files.of([Listing.of("/set/cat", ["1.png", "2.png"])])
    )


def test_files_may_be_empty() -> None:
    assert list(Files.of()) == list(Files.of([Listing.of("/set", [])])) == Listing.of("/set", []).split_names() == []


def test_files_below_equals_relpath() -> None:
    listing = Listing.of("/set/dog/deeper", ["caf\udce9.png", "2.png"])
    expected = [os.fsencode(os.path.relpath(f"/set/dog/deeper/{name}", "/set")) for name in ("caf\udce9.png", "2.png")]
    assert list(Files.of([listing]).iterate_relative_paths("/set")) == expected


def test_files_use_little_memory() -> None:
    names = [f"{number:012}.jpg" for number in range(100_000)]
    tracemalloc.start()
    files = Files.of([Listing.of("/a/folder/with/a/long/path", names)])
    half = files.select(np.arange(len(files)) % 2 == 0)
    allocated_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert allocated_bytes < len(files) * (len(names[0]) + 9) + len(half) * 4 + 10_000
    assert half[1] == "/a/folder/with/a/long/path/000000000002.jpg"
