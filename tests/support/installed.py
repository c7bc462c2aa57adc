"""Builder of plug-in packages that look as if pip had installed them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(folder: Path, package: str, points: Mapping[str, Mapping[str, str]], **modules: str) -> Path:
    """Write a package with entry points and modules into `folder`, and return the path of its entry_points.txt.

    `points` maps a group to its entry points, and `modules` a module name to its source. The caller adds `folder` to
    `sys.path`.
    """
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {at}\n" for name, at in each.items()) for group, each in points.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    return info / "entry_points.txt"
