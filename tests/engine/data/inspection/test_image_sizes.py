"""How large images are."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from engine.contract.dataset import ImageSizes
from engine.data.inspection.image_sizes import image_sizes
from engine.data.inspection.inspector import inspect
from engine.system.paths import sample_dataset


def test_report_has_image_sizes() -> None:
    report = inspect(str(sample_dataset()), val_fraction=0.2, seed=3, progress=lambda _done, _total: None)
    assert report.examples
    assert report.sizes is not None
    assert report.sizes.smallest == report.sizes.largest == (28, 28)


def test_image_sizes_are_smallest_median_and_largest(tmp_path: Path) -> None:
    files = []
    for number, (width, height) in enumerate(((40, 30), (10, 12), (80, 20), (5, 100), (200, 100))):
        files.append(str(tmp_path / f"{number}.png"))
        Image.new("L", (width, height)).save(files[-1])
    (tmp_path / "broken.png").write_bytes(b"no image")
    assert image_sizes([*files, str(tmp_path / "broken.png")]) == ImageSizes((10, 12), (40, 30), (200, 100), 5)
    assert image_sizes([str(tmp_path / "broken.png")]) is None
    assert image_sizes([]) is None
