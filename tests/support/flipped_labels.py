"""A dataset some of whose labels are wrong, which are known."""

from __future__ import annotations

import random
import shutil
from pathlib import Path


def flip_labels(source: Path, target: Path, share: float, max_images: int | None = None, seed: int = 0) -> set[str]:
    """Copy SPLIT/CLASS folders to CLASS/SPLIT-NAME with wrong labels, and return their names.

    At most `most` images per class are copied; the fraction `share`, drawn by `seed`, gets another class.
    """
    draw = random.Random(seed)
    classes = sorted({path.name for path in source.glob("*/*") if path.is_dir()})
    files = [path for name in classes for path in sorted(source.glob(f"*/{name}/*"))[:max_images]]
    wrong = set(draw.sample(files, round(share * len(files))))
    for name in classes:
        (target / name).mkdir(parents=True)
    for path in files:
        label = path.parent.name
        if path in wrong:
            label = draw.choice([name for name in classes if name != label])
        shutil.copyfile(path, target / label / f"{path.parent.parent.name}-{path.parent.name}-{path.name}")
    return {f"{path.parent.parent.name}-{path.parent.name}-{path.name}" for path in wrong}
