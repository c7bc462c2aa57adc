"""``footplate cache``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from engine.data.cache import cache_space
from engine.data.cache.cached_images import CachedImages
from engine.system import paths
from engine.system.cache_limit import LIMIT_VARIABLE, images_folder, limit_bytes
from tests.engine.cli.terminal import run_in_this_process


@pytest.fixture
def filled_cache(tmp_path: Path) -> CachedImages:
    """Create and open the cache of a dataset of two images, add one of them, and return the cache."""
    paths = [tmp_path / "set" / name for name in ("a.jpg", "b.jpg")]
    paths[0].parent.mkdir()
    for path in paths:
        path.write_bytes(b"content")
    cache = CachedImages(
        str(tmp_path / "set"), list(map(str, paths)), size=8, channels=1, version=1, on_failure=lambda reason: None
    )
    assert not cache.prepare(0)
    assert cache.put(0, np.ones((1, 8, 8), np.uint8), 1.0)
    return cache


def test_cache_lists_its_contents(filled_cache: CachedImages, tmp_path: Path) -> None:
    filled_cache.close()
    answer = run_in_this_process("cache")
    assert answer.code == 0
    _, row, last = answer.out.splitlines()
    assert row.split()[:2] == [str(tmp_path / "set"), "1"]
    assert "8 px, gray" in row
    assert str(images_folder()) in last
    [line] = run_in_this_process("cache", "--json").out.splitlines()
    values = json.loads(line)
    assert (values["dataset"], values["size"], values["pictures"]) == (str(tmp_path / "set"), 8, 1)


def test_cache_clear_keeps_used_images(filled_cache: CachedImages) -> None:
    answer = run_in_this_process("cache", "--clear")
    assert answer.err == "Removed 0. 1 remain, in use by runs.\n"
    assert filled_cache.prepare(0)
    filled_cache.close()
    assert run_in_this_process("cache", "--clear").err == "Removed 1.\n"
    assert cache_space.list_sets() == []


def test_cache_limit_persists_and_frees_space(filled_cache: CachedImages) -> None:
    filled_cache.close()
    assert "at most 2.5 GiB" in run_in_this_process("cache", "--limit", "2.5").out
    assert cache_space.limit_bytes() == int(2.5 * cache_space.GIB)
    assert len(cache_space.list_sets()) == 1
    assert run_in_this_process("cache", "--limit", "0").code == 0
    assert cache_space.list_sets() == []


@pytest.mark.parametrize(("text", "gib"), [("2.5", 2.5), ("0", 0), ("inf", None), ("much", None)])
def test_cache_limit_variable_replaces_the_saved_limit(
    monkeypatch: pytest.MonkeyPatch, text: str, gib: float | None
) -> None:
    assert limit_bytes() == min(64 << 30, shutil.disk_usage(paths.cache_folder().parent).total // 10)
    assert run_in_this_process("cache", "--limit", "7").code == 0
    assert limit_bytes() == 7 << 30
    monkeypatch.setenv(LIMIT_VARIABLE, text)
    if gib is None:
        with pytest.raises(ValueError, match=text):
            limit_bytes()
    else:
        assert limit_bytes() == gib * (1 << 30)


@pytest.mark.parametrize("limit", ["-1", "nan", "much"])
def test_cache_refuses_invalid_limits(limit: str) -> None:
    answer = run_in_this_process("cache", "--limit", limit)
    assert answer.code == 2
    assert "--limit" in answer.err
