"""Decoding of images by a pool of threads: caches, unreadable images, and number of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.data.cache import cache_policy, cache_space
from engine.data.datasets.images import FileImages, ImageSet
from engine.data.datasets.open_splits import open_splits
from engine.data.loading.decode_pool import DecodePool, ImageSource
from tests.support.images import write_noise

Make = Callable[..., ImageSource]


@pytest.fixture
def make() -> Iterator[Make]:
    """Return a function that builds image sources, which are closed after the test.

    The attribute `chosen` of a source lists its automatic choices with their reasons.
    """
    built: list[ImageSource] = []

    def build(images: ImageSet, size: int = 16, channels: int = 3, threads: int = 2, **given: Any) -> ImageSource:
        chosen: list[tuple[str, str]] = []
        settings: dict[str, Any] = {
            "on_unreadable": lambda path, reason: pytest.fail(f"{path}: {reason}"),
            "on_chosen": lambda choice, why: chosen.append((choice, why)),
        }
        source = ImageSource(images, size, channels, threads, **settings | given)
        source.chosen = chosen  # type: ignore[attr-defined]
        built.append(source)
        return source

    yield build
    for source in built:
        source.close()


@pytest.fixture
def images(tmp_path: Path) -> ImageSet:
    """Return a training split of eleven JPEGs."""
    for number in range(13):
        write_noise(tmp_path / "set" / "ab"[number % 2] / f"{number}.jpg", number, size=(40, 20 + number))
    return open_splits(str(tmp_path / "set"), val_fraction=0.2, seed=0).train


def plain(images: ImageSet, size: int = 16, channels: int = 3) -> np.ndarray:
    return np.stack([images.load(index, size, channels).numpy() for index in range(len(images))])


def read(source: ImageSource, samples: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    return source.gather(source.decode(samples, replace=True), out)


ALL = np.arange(11)


@pytest.mark.parametrize("cache", ["auto", "memory", "disk", "off"])
@pytest.mark.parametrize("threads", [0, 1, 4])
def test_source_images_do_not_depend_on_cache(make: Make, images: ImageSet, cache: str, threads: int) -> None:
    source = make(images, threads=threads, cache=cache)
    expected = plain(images)
    for samples in (ALL[3:6], ALL[::-1], np.array([2, 2, 9]), ALL):
        assert np.array_equal(read(source, samples), expected[samples])
        out = np.zeros((len(samples), 3, 16, 16), np.uint8)
        assert read(source, samples, out) is out
        assert np.array_equal(out, expected[samples])
    assert [choice for choice, _ in source.chosen] == ["disk" if cache == "auto" else cache]  # type: ignore[attr-defined]
    assert source.is_decoded == (cache != "off")
    assert source.decoded == (2 * (3 + 11 + 2 + 11) if cache == "off" else 11)
    assert source.decode_seconds > 0


def test_source_of_later_run_decodes_nothing(make: Make, images: ImageSet) -> None:
    first = read(make(images), ALL)
    later = make(images)
    assert not later.is_decoded  # files may have changed, so each is checked once
    assert np.array_equal(read(later, ALL), first)
    assert (later.decoded, later.is_decoded) == (0, True)
    aspects = [images.load_stretched(index, 16, 3)[1] for index in range(11)]
    for decoded in (11, 0):
        source = make(images, stretched=True)
        read(source, ALL)
        assert source.aspects(ALL).tolist() == pytest.approx(aspects)
        assert source.decoded == decoded


def test_workers_share_decoded_images(make: Make, images: ImageSet) -> None:
    ranks = [make(images), make(images)]
    for _ in range(2):
        for rank, source in enumerate(ranks):
            read(source, ALL[rank::2])
        ranks.reverse()
    assert [source.decoded for source in ranks] == [6, 5]
    assert all(source.is_decoded for source in ranks)
    for source in ranks:
        source.close()
    assert cache_space.clear() == (1, 0)


@pytest.mark.parametrize(("size", "choice"), [(28, "file"), (32, "memory")])
def test_idx_images_are_mapped_or_resized_into_memory(make: Make, digits: Path, size: int, choice: str) -> None:
    split = open_splits(str(digits), val_fraction=0.2, seed=0).train
    source = make(split, size=size, channels=1)
    samples = np.arange(40)[::-1]
    assert np.array_equal(read(source, samples), plain(split, size, 1)[samples])
    assert [one for one, _ in source.chosen] == [choice]  # type: ignore[attr-defined]
    assert source.is_decoded
    assert source.decoded == (0 if choice == "file" else 40)


def test_source_falls_back_to_memory_then_to_no_cache(
    make: Make, images: ImageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOOTPLATE_CACHE_LIMIT_GIB", "0")
    source = make(images)
    read(source, ALL)
    [(choice, why)] = source.chosen  # type: ignore[attr-defined]
    assert choice == "memory"
    assert "its limit of 0 MiB" in why
    assert "footplate cache --limit" in why
    monkeypatch.setattr(cache_policy, "MEMORY_LIMIT_BYTES", 0)
    source = make(images)
    assert np.array_equal(read(source, ALL), plain(images))
    [(choice, why)] = source.chosen  # type: ignore[attr-defined]
    assert choice == "off"
    assert "There is no room in memory" in why


def test_cache_failure_is_reported_once(make: Make, images: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make(images)
    read(source, ALL[:4])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("engine.data.cache.cached_images._write", full)
    for _ in range(2):
        assert np.array_equal(read(source, ALL), plain(images))
    choices, reasons = zip(*source.chosen, strict=True)  # type: ignore[attr-defined]
    assert choices == ("disk", "off")
    assert "No space left on device" in reasons[1]
    assert not source.is_decoded
    assert source.decoded == 4 + 7 + 7


def test_unreadable_images_are_reported_by_every_run(make: Make, images: ImageSet, tmp_path: Path) -> None:
    assert isinstance(images, FileImages)
    Path(images.files[4]).write_bytes(b"no image")
    reported: list[str] = []
    for _ in range(2):
        source = make(images, on_unreadable=lambda path, reason: reported.append(path))
        assert source.decode(ALL, replace=False).tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10]
        assert source.decode(ALL, replace=True).tolist() == [0, 1, 2, 3, 5, 5, 6, 7, 8, 9, 10]
        assert source.is_decoded
    assert reported == [images.path(4)] * 2


def test_source_without_memory_raises_memory_error(
    make: Make, images: ImageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*given: Any) -> np.ndarray:
        raise MemoryError

    reported: list[str] = []
    monkeypatch.setattr("engine.data.datasets.images.decode", no_room)
    with pytest.raises(MemoryError):
        make(images, on_unreadable=lambda path, reason: reported.append(reason)).decode(ALL, replace=True)
    assert set(reported) == {"there is not enough memory to decode it"}


def test_set_threads_changes_running_source(make: Make, images: ImageSet) -> None:
    def count() -> int:
        return sum(thread.name.startswith("decode") for thread in threading.enumerate())

    source = make(images, threads=1, cache="off")
    thread_counts = []
    for threads in (1, 4, 2, 0):
        source.set_threads(threads)
        assert np.array_equal(read(source, ALL), plain(images))
        thread_counts.append(count())
    assert thread_counts[0] == thread_counts[3] == 0
    assert 2 <= thread_counts[1] <= 4
    assert 1 <= thread_counts[2] <= 2


def test_run_raises_after_all_threads_have_stopped() -> None:
    has_raised = threading.Event()
    started: list[int] = []
    finished: list[int] = []

    def work(sample: int) -> None:
        started.append(sample)
        if sample == 0:
            has_raised.set()
            raise ZeroDivisionError("a bug")
        has_raised.wait(120)
        np.linalg.svd(np.random.default_rng(sample).random((300, 300)))
        finished.append(sample)

    pool = DecodePool()
    with pytest.raises(ZeroDivisionError, match="a bug"):
        pool.run(work, range(100), threads=3)
    assert sorted([0, *finished]) == sorted(started)
    assert len(started) < 100
    pool.close()


def test_unreadable_images_are_decoded_once_and_replaced_by_the_next(make: Make, images: ImageSet) -> None:
    expected = plain(images)
    load, loaded = images.load, []

    def count(index: int, size: int, channels: int) -> Any:
        loaded.append(index)
        return load(index, size, channels)

    images.load = count  # type: ignore[method-assign]
    for index in (2, 3, 4, 10):
        Path(images.files[index]).write_bytes(b"torn")
    reported: list[str] = []
    source = make(images, cache="memory", threads=0, on_unreadable=lambda path, reason: reported.append(path))
    for _ in range(2):
        samples = source.decode(np.array([2, 9, 10, 3]), replace=True)
        assert samples.tolist() == [5, 9, 0, 5]
        assert np.array_equal(source.gather(samples), expected[samples])
        assert source.decode(np.array([2, 9, 10]), replace=False).tolist() == [9]
    assert sorted(loaded) == [0, 2, 3, 4, 5, 9, 10]
    assert (len(reported), source.decoded) == (4, 3)
