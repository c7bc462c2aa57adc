"""Memory limits of containers, as the advisor reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.advisor import memory

V2 = {"memory.max": "1000\n", "memory.current": "600\n", "memory.stat": "anon 300\ninactive_file 250\n"}
V1 = {
    "memory/memory.limit_in_bytes": "1000\n",
    "memory/memory.usage_in_bytes": "600\n",
    "memory/memory.stat": "inactive_file 100\ntotal_inactive_file 250\n",
}


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
    assert list(memory._free_in_cgroups()) == free
