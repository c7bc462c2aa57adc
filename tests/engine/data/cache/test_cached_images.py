"""The cache on disk: shared, current, whole, and within its limit."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.data.cache import cache_space
from engine.data.cache.cache_space import CacheRefused
from engine.data.cache.cached_images import RECORD, CachedImages
from engine.system.cache_limit import LIMIT_VARIABLE

ROOT = Path(__file__).parents[4]
SIZE, CHANNELS, COUNT = 8, 3, 12
BYTES = SIZE * SIZE * CHANNELS
Open = Callable[..., CachedImages]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Twelve files; a "image" decodes to its file's first byte everywhere."""
    for place in range(COUNT):
        write(tmp_path / "set" / "ab"[place % 2] / f"{place}.jpg", place + 1)
    return tmp_path / "set"


@pytest.fixture
def cached() -> Iterator[Open]:
    """Opens caches of a folder that are closed at the end."""
    with contextlib.ExitStack() as stack:

        def open_cache(folder: Path, **given: Any) -> CachedImages:
            def fail(reason: str) -> None:
                pytest.fail(f"the cache failed: {reason}")

            settings: dict[str, Any] = {"size": SIZE, "channels": CHANNELS, "version": 1, "on_failure": fail} | given
            one = CachedImages(str(folder), files(folder), **settings)
            stack.callback(one.close)
            return one

        yield open_cache


def write(path: Path, level: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes([level]) * 50)


def files(folder: Path) -> list[str]:
    return sorted(map(str, folder.rglob("*.jpg")))


def decoded(path: str) -> np.ndarray:
    return np.full((CHANNELS, SIZE, SIZE), Path(path).read_bytes()[0], np.uint8)


def aspect(path: str) -> float:
    return Path(path).read_bytes()[0] / 64


def use(cache: CachedImages, folder: Path) -> int:
    """Finds or decodes every image, as a run does; how many had to be decoded. What comes out is right."""
    paths = files(folder)
    count = 0
    for sample, path in enumerate(paths):
        if not cache.find(sample):
            assert cache.put(sample, decoded(path), aspect(path))
            count += 1
    out = np.empty((len(paths), CHANNELS, SIZE, SIZE), np.uint8)
    cache.gather(np.arange(len(paths)), out)
    assert np.array_equal(out, np.stack([decoded(path) for path in paths]))
    assert [cache.aspect(sample) for sample in range(len(paths))] == list(map(aspect, paths))
    return count


def test_that_an_image_is_decoded_once_for_all_that_open_the_cache(dataset: Path, cached: Open) -> None:
    first, second = cached(dataset), cached(dataset)
    assert use(first, dataset) == COUNT
    assert use(second, dataset) == 0  # opened before anything was there
    assert use(cached(dataset), dataset) == 0


@pytest.mark.parametrize("other", [{"size": 9}, {"channels": 1}, {"version": 2}])
def test_that_other_settings_share_nothing(dataset: Path, cached: Open, other: dict[str, int]) -> None:
    use(cached(dataset), dataset)
    assert not any(map(cached(dataset, **other).find, range(COUNT)))


def test_that_only_what_has_changed_is_decoded_again(dataset: Path, cached: Open) -> None:
    use(cached(dataset), dataset)
    write(dataset / "a/0.jpg", 99)
    write(dataset / "b/new.jpg", 77)
    (dataset / "a/2.jpg").unlink()
    assert use(cached(dataset), dataset) == 2
    assert use(cached(dataset), dataset) == 0


def test_that_who_has_found_an_image_keeps_it_when_its_file_changes(dataset: Path, cached: Open) -> None:
    early = cached(dataset)
    use(early, dataset)
    before = decoded(str(dataset / "a/0.jpg"))
    write(dataset / "a/0.jpg", 99)
    assert use(cached(dataset), dataset) == 1
    out = np.empty((1, CHANNELS, SIZE, SIZE), np.uint8)
    early.gather(np.array([0]), out)
    assert np.array_equal(out[0], before)


def test_that_an_image_changed_while_it_was_decoded_is_not_taken_for_the_new_one(dataset: Path, cached: Open) -> None:
    cache = cached(dataset)
    path = files(dataset)[0]
    assert not cache.find(0)
    pixels = decoded(path)
    write(Path(path), 99)
    cache.put(0, pixels, 1.0)
    assert not cached(dataset).find(0)


def test_that_a_cache_removed_by_hand_and_made_anew_is_not_mixed_up(dataset: Path, cached: Open) -> None:
    early = cached(dataset)
    use(early, dataset)
    shutil.rmtree(cache_space.root())
    (dataset / "a/0.jpg").unlink()  # so that rows differ
    use(cached(dataset), dataset)
    write(dataset / "a/0.jpg", 99)
    assert use(early, dataset) == 1


def test_that_a_file_that_has_gone_is_not_found(dataset: Path, cached: Open) -> None:
    cache = cached(dataset)
    use(cache, dataset)
    Path(files(dataset)[3]).unlink()
    assert not cache.find(3)


def test_that_rows_of_files_as_they_were_do_not_pile_up(dataset: Path) -> None:
    for level in range(50, 58):
        for path in files(dataset):
            write(Path(path), level)
        assert fill_and_close(dataset, 1e9) == COUNT
        [one] = cache_space.sets()
        assert one.reserved_bytes <= 4 * COUNT * (BYTES + RECORD.itemsize)


def damage_pixels(folder: Path) -> None:
    with (folder / "pixels").open("r+b") as stream:
        stream.seek(5 * BYTES + 7)
        stream.write(b"\xff\xfe")


def lose_pixels(folder: Path) -> None:
    """As where the system went down before they were written."""
    size = (folder / "pixels").stat().st_size
    os.truncate(folder / "pixels", 5 * BYTES)
    os.truncate(folder / "pixels", size)


def cut_pixels(folder: Path) -> None:
    os.truncate(folder / "pixels", 5 * BYTES + 11)


def cut_index(folder: Path) -> None:
    os.truncate(folder / "index", 5 * RECORD.itemsize + 11)


def swap_records(folder: Path) -> None:
    records = np.fromfile(folder / "index", RECORD)
    records[["file_bytes", "mtime_ns", "checksum"]] = records[["file_bytes", "mtime_ns", "checksum"]][::-1]
    records.tofile(folder / "index")


def scramble_index(folder: Path) -> None:
    size = (folder / "index").stat().st_size
    (folder / "index").write_bytes(np.random.default_rng(0).bytes(size))


def empty_about(folder: Path) -> None:
    (folder / "about.json").write_bytes(b"")


@pytest.mark.parametrize(
    "harm", [damage_pixels, lose_pixels, cut_pixels, cut_index, swap_records, scramble_index, empty_about]
)
def test_that_nothing_torn_is_ever_trusted(dataset: Path, cached: Open, harm: Callable[[Path], None]) -> None:
    before = cached(dataset)
    use(before, dataset)
    folder = before.folder
    harm(folder)
    again = use(cached(dataset), dataset)  # which compares every image
    assert (again > 0) == (harm is not empty_about)
    assert use(cached(dataset), dataset) == 0


WORKER = textwrap.dedent(
    """
    import itertools, random, sys
    from pathlib import Path
    from engine.data.cache.cached_images import CachedImages
    from tests.engine.data.cache.test_cached_images import decoded, files

    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    paths = files(folder)
    print("ready", flush=True)
    sys.stdin.readline()
    random.seed(rank)
    for _ in itertools.count() if rank == 3 else range(20):
        cache = CachedImages(str(folder), paths, size=8, channels=3, version=1, on_failure=sys.exit)
        print("opened", flush=True)
        for sample in random.sample(range(len(paths)), len(paths)):
            if not cache.find(sample):
                pixels = decoded(paths[sample])
                # in vain where another did so just before the file changed
                cache.put(sample, pixels, int(pixels[0, 0, 0]) / 64)
        cache.close()
        if rank == 0:
            (folder / "new").write_bytes(bytes([random.randrange(1, 256)]) * 60)
            (folder / "new").replace(random.choice(paths))
    """
)


def test_that_processes_fill_one_cache_together_while_files_change_and_one_of_them_is_killed(
    dataset: Path, cached: Open
) -> None:
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(dataset), str(rank)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(4)
    ]
    for word, answer in (("", "ready\n"), ("go\n", "opened\n")):
        for worker in workers:
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write(word)
            worker.stdin.flush()
            assert worker.stdout.readline() == answer
    workers[3].kill()
    for worker in workers:
        worker.communicate(timeout=120)
    assert [worker.returncode for worker in workers] == [0, 0, 0, -signal.SIGKILL]
    use(cached(dataset), dataset)  # which compares every image
    assert use(cached(dataset), dataset) == 0


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"FOOTPLATE_CACHE": "/c", "FOOTPLATE_HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/c/pictures"),
        ({"FOOTPLATE_HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/h/cache/pictures"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/footplate/pictures"),
        ({"HOME": "/u"}, "/u/.cache/footplate/pictures"),
    ],
)
def test_that_the_environment_says_where_the_cache_is(
    variables: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FOOTPLATE_CACHE", "FOOTPLATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(cache_space.root()) == place


def test_that_a_link_to_the_dataset_is_the_dataset(dataset: Path, cached: Open, tmp_path: Path) -> None:
    use(cached(dataset), dataset)
    (tmp_path / "link").symlink_to(dataset)
    assert use(cached(tmp_path / "link"), tmp_path / "link") == 0


def other_sets(tmp_path: Path, count: int) -> list[Path]:
    """As many datasets of twelve files."""
    folders = [tmp_path / f"other{number}" for number in range(count)]
    for folder in folders:
        for place in range(COUNT):
            write(folder / f"c/{place}.jpg", place + 1)
    return folders


def limit_to(sets: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for so many sets of twelve images."""
    limit = sets * COUNT * (BYTES + RECORD.itemsize) / cache_space.GIB
    monkeypatch.setenv(LIMIT_VARIABLE, f"{limit:.15f}")


def fill_and_close(folder: Path, used_at: float) -> int:
    """How many images had to be decoded."""
    cache = CachedImages(
        str(folder), files(folder), size=SIZE, channels=CHANNELS, version=1, on_failure=lambda reason: None
    )
    count = use(cache, folder)
    cache.close()
    os.utime(cache.folder / "index", (used_at, used_at))
    return count


def test_that_what_was_used_least_recently_makes_room(
    tmp_path: Path, cached: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_to(3.5, monkeypatch)
    folders = other_sets(tmp_path, 4)
    for folder, used_at in zip(folders[:3], (2e9, 1e9, 3e9), strict=True):
        fill_and_close(folder, used_at)
    use(cached(folders[3]), folders[3])
    assert {one.about.dataset for one in cache_space.sets()} == {str(folders[0]), str(folders[2]), str(folders[3])}


def test_that_what_is_in_use_is_never_removed(tmp_path: Path, cached: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_to(2.5, monkeypatch)
    folders = other_sets(tmp_path, 4)
    oldest = cached(folders[0])
    use(oldest, folders[0])
    os.utime(oldest.folder / "index", (1e9, 1e9))
    fill_and_close(folders[1], 2e9)
    use(cached(folders[2]), folders[2])  # in place of the second
    with pytest.raises(CacheRefused, match="would exceed its limit"):
        cached(folders[3])
    assert cache_space.clear() == (0, 2)
    assert {one.about.dataset for one in cache_space.sets()} == {str(folders[0]), str(folders[2])}
    assert use(oldest, folders[0]) == 0


def test_that_what_can_never_fit_removes_nothing(
    tmp_path: Path, dataset: Path, cached: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_and_close(dataset, 1e9)
    limit_to(1.5, monkeypatch)
    with pytest.raises(CacheRefused, match="would exceed its limit"):
        cached(other_sets(tmp_path, 1)[0], size=2 * SIZE)
    assert [one.about.dataset for one in cache_space.sets()] == [str(dataset)]


def test_that_a_disk_that_is_nearly_full_is_left_alone(
    dataset: Path, cached: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_space, "_left_free", lambda disk_bytes: disk_bytes)
    with pytest.raises(CacheRefused, match="the disk has no room"):
        cached(dataset)
    assert cache_space.sets() == []


def test_that_a_folder_that_cannot_be_written_is_refused_with_its_reason(
    dataset: Path, cached: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FOOTPLATE_CACHE", str(tmp_path / "file"))
    with pytest.raises(CacheRefused, match=r"file/pictures can't be written to \(Not a directory\)"):
        cached(dataset)


def test_that_a_senseless_limit_is_refused(dataset: Path, cached: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "lots")
    with pytest.raises(CacheRefused, match="“lots”, not a number of GiB"):
        cached(dataset)


def test_that_a_write_that_fails_is_told_once_and_what_is_there_stays(dataset: Path, cached: Open) -> None:
    told: list[str] = []
    cache = cached(dataset, on_failure=told.append)
    paths = files(dataset)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5 * BYTES, limits[1]))  # Python ignores the signal that goes with it
    try:
        kept = [cache.find(sample) or cache.put(sample, decoded(paths[sample]), 1.0) for sample in range(COUNT)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert kept == [True] * 5 + [False] * 7
    assert told == ["File too large"]
    assert [cached(dataset).find(sample) for sample in range(COUNT)] == kept


@pytest.mark.long
def test_that_opening_a_large_dataset_takes_a_moment() -> None:
    code = textwrap.dedent(
        """
        import sys, time
        from engine.data.cache.cached_images import CachedImages
        names = [f"/nowhere/class{n % 1000}/image-{n}.jpg" for n in range(200_000)]
        for _ in range(2):
            begun = time.process_time()
            CachedImages("/nowhere", names, size=8, channels=3, version=1, on_failure=sys.exit).close()
            print(time.process_time() - begun)
        """
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert all(float(seconds) < 2 for seconds in result.stdout.split())  # 0.3 s on an idle core


def test_that_torch_is_not_needed() -> None:
    code = "import sys, engine.data.cache.cached_images; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
