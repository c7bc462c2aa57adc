"""Memory limits of containers, as the advisor reads them."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from engine.advisor import memory
from engine.advisor.memory import MainMemoryLimit, read_gpu_peaks

V2 = {"memory.max": "1000\n", "memory.current": "600\n", "memory.stat": "anon 300\ninactive_file 250\n"}
V1 = {
    "memory/memory.limit_in_bytes": "1000\n",
    "memory/memory.usage_in_bytes": "600\n",
    "memory/memory.stat": "inactive_file 100\ntotal_inactive_file 250\n",
}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems report another peak")
def test_peak_counts_memory_that_was_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    with mmap.mmap(-1, 64 << 20) as block:  # malloc may keep freed memory
        block.write(b"x" * len(block))
    used_bytes = psutil.Process().memory_info().rss  # afterwards, so that a garbage collection can only lower it
    main = MainMemoryLimit.__new__(MainMemoryLimit)  # without the limit that it sets for this process
    main._limit = 1 << 50
    for soft, names in ((resource.RLIM_INFINITY, ["memory"]), (1 << 40, ["memory", "address space"])):
        monkeypatch.setattr(resource, "getrlimit", lambda _kind, soft=soft: (soft, -1))
        peaks = main.read_peak()
        assert list(peaks) == names
    assert used_bytes + (60 << 20) < peaks["memory"][0] < peaks["address space"][0]
    assert [limit for _, limit in peaks.values()] == [1 << 50, 1 << 40]
    assert peaks["memory"][0] == pytest.approx(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, rel=0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux enforces the limit")
def test_processes_share_the_free_memory_of_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    soft_limits: list[int] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _kind, limits: soft_limits.append(limits[0]))
    used = (1 << 36) - (1 << 30)  # 1 GiB is free
    for name, content in {"max": 1 << 36, "current": used, "stat": "inactive_file 0"}.items():
        (tmp_path / f"memory.{name}").write_text(f"{content}\n")
    monkeypatch.setattr(memory, "_ROOT", tmp_path)
    monkeypatch.setattr(memory, "_read_process_bytes", lambda _name: 0)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1 << 35))
    MainMemoryLimit(4, reserve=0.25)
    assert soft_limits == [3 << 26]


def test_gpu_peak_is_limited_by_the_memory_of_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"mem_get_info": (5, 12), "memory_reserved": 3, "max_memory_reserved": 4}.items():
        monkeypatch.setattr(torch.cuda, name, lambda _device, value=value: value)
    assert read_gpu_peaks([torch.device("cuda", 1)]) == {"GPU 1": (4, 5 + 3)}


@pytest.mark.parametrize(
    ("files", "free"),
    [
        (V2, [650]),  # 1000 - 600, plus memory that the kernel can reclaim
        (V1, [650]),
        (V2 | {"memory.max": "max\n"}, []),
        (V2 | {"memory.stat": "anon 300\n"}, [400]),
        ({}, []),
    ],
    ids=["version_2", "version_1", "unlimited", "nothing_cached", "no_container"],
)
def test_free_memory_in_container_includes_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], free: list[int]
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(memory, "_ROOT", tmp_path)
    assert list(memory._read_free_in_cgroups()) == free
