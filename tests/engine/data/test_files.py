"""Paths of many files in little memory."""

from __future__ import annotations

import os
import tracemalloc

import numpy as np
import pytest

from engine.data.files import TOGETHER, Files, Listing

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


def test_that_paths_come_back_as_they_were_in_their_order(files: Files) -> None:
    assert list(files) == PATHS
    assert [files[place] for place in range(-5, 0)] == PATHS
    assert files[np.int64(3)] == PATHS[3]  # type: ignore[call-overload]
    assert len(files) == 5


@pytest.mark.parametrize("place", [5, -6])
def test_that_there_is_nothing_beyond_the_last(files: Files, place: int) -> None:
    with pytest.raises(IndexError):
        files[place]


def test_that_going_through_many_gives_what_asking_for_each_gives() -> None:
    files = Files.of(Listing.of(f"/{folder}", [f"{folder}-{name}" for name in range(folder)]) for folder in range(150))
    assert len(files) > 2 * TOGETHER
    for part in (files, files[::-1], files.select(np.arange(len(files)) % 3 > 0)):
        assert list(part) == [part[place] for place in range(len(part))]


def test_that_parts_and_parts_of_parts_can_be_selected(files: Files) -> None:
    assert list(files[1:4]) == PATHS[1:4]
    odd = files.select(np.array([True, False, True, False, True]))
    assert list(odd) == PATHS[::2]
    assert list(odd[::-1]) == PATHS[::-2]
    assert list(odd.select(np.array([False, True, True]))) == [PATHS[2], PATHS[4]]


def test_that_other_files_of_the_same_listings_have_another_identity(files: Files) -> None:
    def identity(of: Files) -> bytes:
        return b"".join(map(bytes, of.identity("/set")))

    assert identity(files[1:4]) == identity(files[1:4])
    assert len({identity(part) for part in (files, files[1:4], files[:3], files[2:4])}) == 4
    moved = Files.of([Listing.of("/elsewhere/cat", ["1.png", "2.png"])])
    assert b"".join(map(bytes, moved.identity("/elsewhere"))) == identity(
        Files.of([Listing.of("/set/cat", ["1.png", "2.png"])])
    )


def test_that_no_files_are_an_empty_list() -> None:
    assert list(Files.of()) == list(Files.of([Listing.of("/set", [])])) == []


def test_files_below_equals_relpath() -> None:
    listing = Listing.of("/set/dog/deeper", ["caf\udce9.png", "2.png"])
    expected = [os.fsencode(os.path.relpath(f"/set/dog/deeper/{name}", "/set")) for name in ("caf\udce9.png", "2.png")]
    assert list(Files.of([listing]).below("/set")) == expected


def test_that_a_file_takes_its_name_and_few_bytes_more() -> None:
    names = [f"{number:012}.jpg" for number in range(100_000)]
    tracemalloc.start()
    files = Files.of([Listing.of("/a/folder/with/a/long/path", names)])
    half = files.select(np.arange(len(files)) % 2 == 0)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < len(files) * (len(names[0]) + 9) + len(half) * 4 + 10_000
    assert half[1] == "/a/folder/with/a/long/path/000000000002.jpg"
