"""Speed of decoding images, and the time that the image cache saves.

    python tests/benchmarks/decode_speed.py [--dataset FOLDER] [--images 2000] [--seconds 1.0]

The first part measures decoders in images per second and core (the thread's CPU time): libjpeg-turbo as Footplate calls
it, Pillow, and `torchvision.io.decode_jpeg`, each in a loop over files in memory. They decode complete images, and
images that are then resized and cropped to several sizes. The decoders take turns, and each line shows the median. The
second part measures an `ImageSource` with an empty cache: its first epoch, its second epoch, and the first epoch of
another run. Without a dataset, JPEGs of 500 px are generated. The exit code is 1 if torchvision decodes complete images
faster.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_jpeg

from engine.data.datasets.images import ImageSet
from engine.data.datasets.open_splits import open_splits
from engine.data.decoding.images import decode, decode_jpeg_pixels, fit
from engine.data.loading.decode_pool import ImageSource
from tests.benchmarks.frame import describe_environment, make_parser
from tests.support.timed_runs import make_images

SIZES = (64, 160, 224)
FULL_SIZE = 1 << 20
"""Target size so large that every image is decoded at full scale."""
BLOCK = 32
SAMPLE = 100
"""Number of images that a decoder decodes in each of its turns."""

Side = Callable[[bytes, torch.Tensor], object]


def by_pillow(content: bytes) -> np.ndarray:
    with Image.open(BytesIO(content)) as image:
        return np.asarray(image.convert("RGB"))


def fit_image(pixels: np.ndarray, size: int) -> np.ndarray:
    return fit(torch.from_numpy(pixels).permute(2, 0, 1)[None], size)[0].numpy()


def full_size_sides() -> dict[str, Side]:
    return {
        "torchvision, whole": lambda _, tensor: decode_jpeg(tensor, mode=ImageReadMode.RGB),
        "Pillow, whole": lambda content, _: by_pillow(content),
        "Footplate, whole": lambda content, _: decode_jpeg_pixels(content, FULL_SIZE, 3),
    }


def sized_sides(size: int) -> dict[str, Side]:
    def torchvision(_: bytes, tensor: torch.Tensor) -> object:
        return fit(decode_jpeg(tensor, mode=ImageReadMode.RGB)[None], size)[0].numpy()

    return {
        f"torchvision, to {size} px": torchvision,
        f"Pillow, to {size} px": lambda content, _: fit_image(np.array(by_pillow(content)), size),
        f"Footplate, to {size} px": lambda content, _: decode(content, size, 3),
    }


def measure_rates(sides: dict[str, Side], contents: list[bytes], seconds: float) -> dict[str, float]:
    """Decode the images `contents` with each of the decoders `sides` in turn. Return their images per second and core.

    Each decoder takes about `seconds` of CPU time.
    """
    tensors = [torch.frombuffer(bytearray(content), dtype=torch.uint8) for content in contents]
    found: dict[str, list[float]] = {name: [] for name in sides}
    spent = 0.0
    while spent < seconds * len(sides) or len(found[next(iter(sides))]) < 4:
        for name, side in sides.items():
            start = time.thread_time()
            for content, tensor in zip(contents, tensors, strict=True):
                side(content, tensor)
            took = time.thread_time() - start
            spent += took
            found[name].append(len(contents) / took)
    return {name: statistics.median(turns[1:]) for name, turns in found.items()}  # the first turn is for warm-up


def measure_epoch_rate(source: ImageSource, count: int) -> float:
    """Load an epoch of `count` images in random order. Return the number of images per second of wall-clock time."""
    order = np.random.default_rng(0).permutation(count)
    started_s = time.perf_counter()
    for start in range(0, count, BLOCK):
        source.gather(source.decode(order[start : start + BLOCK], replace=True))
    return count / (time.perf_counter() - started_s)


def measure_cached_rates(images: ImageSet, size: int, threads: int, cache: str) -> tuple[float, float, float]:
    """Measure the images per second in the first and second epoch of a run, and in the first epoch of a later run.

    `cache` is the place of the cache for decoded images: "disk", "memory" or "off".
    """

    def make() -> ImageSource:
        return ImageSource(images, size, 3, threads, lambda path, reason: None, cache=cache)

    with tempfile.TemporaryDirectory() as folder:
        os.environ["FOOTPLATE_CACHE"] = folder
        first, later = make(), make()
        found = (
            measure_epoch_rate(first, len(images)),
            measure_epoch_rate(first, len(images)),
            measure_epoch_rate(later, len(images)),
        )
        first.close()
        later.close()
    return found


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--dataset", help="a folder of JPEGs, one folder per class")
    parser.add_argument("--images", type=int, default=2000, help="how many to make otherwise")
    parser.add_argument("--seconds", type=float, default=1.0, help="of processor time for each line")
    options = parser.parse_args()
    # Torchvision's decoders are used only for comparison.
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    torch.set_num_threads(1)
    print(describe_environment())
    print(", ".join(f"{name} {version(name)}" for name in ("torchvision", "pillow", "simplejpeg", "numpy")))
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.dataset or str(make_images(Path(temporary), options.images, 500))
        images = open_splits(folder, val_fraction=0.2, seed=0).train
        paths = [images.files[place] for place in range(min(SAMPLE, len(images)))]
        contents = [content for path in paths if (content := Path(path).read_bytes()).startswith(b"\xff\xd8")]
        print(f"{len(images):,} images; {sum(map(len, contents)) / len(contents) / 1024:.0f} KiB on average\n")
        full_size = measure_rates(full_size_sides(), contents, options.seconds)
        tables = [full_size, *(measure_rates(sized_sides(size), contents, options.seconds) for size in SIZES)]
        for table in tables:
            baseline = next(iter(table.values()))
            for name, rate in table.items():
                print(f"{name:28} {rate:8,.0f} images/s per core   {rate / baseline:5.2f} x torchvision")
        print()
        for size in SIZES:
            for threads in (1, 2):
                for cache in ("disk", "memory", "off"):
                    found = measure_cached_rates(images, size, threads, cache)
                    line = "   ".join(f"{rate:8,.0f}" for rate in found)
                    print(f"{size} px, {threads} threads, {cache:6}  first, second, next run: {line} images/s")
    torchvision, _, footplate = full_size.values()
    return int(footplate < torchvision)


if __name__ == "__main__":
    sys.exit(main())
