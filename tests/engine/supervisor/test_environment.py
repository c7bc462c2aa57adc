"""Number of usable CPU cores under the quotas of control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.supervisor import environment


@pytest.mark.parametrize(
    ("group", "files", "cores"),
    [
        ("0::/", {"cpu.max": "800000 100000"}, 8),
        ("0::/", {"cpu.max": "150000 100000"}, 2),
        ("0::/", {"cpu.max": "max 100000"}, 16),
        ("0::/a/b", {"a/cpu.max": "400000 100000", "a/b/cpu.max": "max 100000"}, 4),
        ("0::/gone", {"cpu.max": "300000 100000"}, 3),
        (
            "2:cpuset:/a\n0::/",
            {"cpu.max": "300000 100000", "cpu/a/cpu.cfs_quota_us": "200000", "cpu/a/cpu.cfs_period_us": "100000"},
            3,
        ),
        ("3:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us": "200000", "cpu/a/cpu.cfs_period_us": "100000"}, 2),
        ("3:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, 16),
        ("0::/", {}, 16),
    ],
)
def test_usable_cores_respect_quotas(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, group: str, files: dict[str, str], cores: int
) -> None:
    for name, content in (
        {"proc/self/cgroup": group} | {f"groups/{name}": text for name, text in files.items()}
    ).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    monkeypatch.setattr(environment, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(environment, "_CGROUPS", tmp_path / "groups")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    assert environment.usable_cores() == cores
