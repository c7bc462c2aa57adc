"""Image files with every suffix. They are read, or the error names the package to install."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
from PIL import Image, UnidentifiedImageError

from engine.data.datasets.open_splits import open_splits
from engine.data.decoding.image_files import EXTENSIONS, is_image
from engine.data.decoding.limits import Unfit
from engine.data.decoding.pixels import decode_pixels
from engine.data.decoding.reading import decode_header

SIZE = (40, 24)
FORMS = {
    ".jfif": "JPEG",
    ".jpe": "JPEG",
    ".avif": "AVIF",
    ".jp2": "JPEG2000",
    ".tga": "TGA",
    ".pnm": "PPM",
    ".pbm": "PPM",
}
BLOCK = (slice(6, 18), slice(10, 30))


def draw_scene() -> np.ndarray:
    """Draw a bright block on a dark background, uint8 [h, w, 3]."""
    pixels = np.full((SIZE[1], SIZE[0], 3), 20, np.uint8)
    pixels[BLOCK] = (220, 210, 200)
    return pixels


def write_scene(path: Path) -> Path:
    """Write the image from `draw_scene` to `path`. The suffix determines the file format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(draw_scene())
    if path.suffix == ".npy":
        np.save(path, draw_scene())
    elif path.suffix in (".heic", ".heif"):
        import pillow_heif

        pillow_heif.from_pillow(image).save(path, quality=95)
    else:
        image = image.convert("1", dither=Image.Dither.NONE) if path.suffix == ".pbm" else image
        image.save(path, FORMS[path.suffix])
    return path


@pytest.mark.parametrize("ending", [*FORMS, ".npy", ".heic", ".heif"])
def test_images_of_every_ending_are_trained_on(tmp_path: Path, ending: str) -> None:
    if ending in (".heic", ".heif"):
        pytest.importorskip("pillow_heif")
    for name in ("train/a", "train/b", "val/a", "val/b"):
        write_scene(tmp_path / name / f"0{ending}")
    splits = open_splits(str(tmp_path), val_fraction=0.25, seed=0)
    assert is_image(f"x{ending.upper()}")
    assert len(splits.train) == 2
    content = (tmp_path / f"train/a/0{ending}").read_bytes()
    image = decode_header(content)
    assert image.size == SIZE
    bright = image.getpixel((15, 10))
    image.putpixel((0, 0), bright)  # type: ignore[arg-type]
    assert image.getpixel((0, 0)) == bright
    pixels = decode_pixels(content, 3)
    assert pixels.shape == (SIZE[1], SIZE[0], 3)
    assert pixels[8:16, 12:28].min() > 150
    assert pixels[:4].max() < 60


def test_heif_without_its_reader_is_refused_with_the_command() -> None:
    script = (
        "import sys; sys.modules['pillow_heif'] = None\n"
        "from engine.data.decoding.reading import decode_header, describe_failure\n"
        "for brands in sys.argv[1:]:\n"
        "    try:\n        decode_header(b'\\0\\0\\0\\x18ftyp' + brands.encode() + b'avif' + bytes(40))\n"
        "    except Exception as error:\n        print(describe_failure(error))\n"
    )
    brands = [
        f"{brand}....{others}" for brand in ("heic", "mif1", "hevc", "mp42") for others in ("mif1heic", "mif1avif")
    ]
    done = subprocess.run(
        [sys.executable, "-c", script, *brands], capture_output=True, text=True, check=True, timeout=60
    )
    is_heif = ['pip install "footplate[heif]"' in line for line in done.stdout.splitlines()]
    assert is_heif == [True, False] * 3 + [False, False]


@pytest.mark.parametrize("compression", ["lerc", "jpegxl"])
def test_a_broken_tiff_for_tifffile_is_refused(compression: str) -> None:
    import tifffile

    stream = io.BytesIO()
    tifffile.imwrite(stream, draw_scene(), photometric="rgb", compression=compression)
    content = stream.getvalue()
    with pytest.raises(Exception, match=r"."):
        decode_pixels(content[: len(content) // 2], 3)
    assert decode_pixels(content, 3).shape == (SIZE[1], SIZE[0], 3)


def test_a_tiff_with_colors_that_only_pillow_converts_is_refused() -> None:
    import tifffile

    stream = io.BytesIO()
    tifffile.imwrite(stream, np.zeros((8, 8, 4), np.uint8), photometric="separated", compression="lerc")
    with pytest.raises(UnidentifiedImageError):
        decode_header(stream.getvalue())


def test_every_known_ending_has_a_format() -> None:
    known = Image.registered_extensions()
    others = {".npy", ".heic", ".heif"}
    assert {ending for ending in EXTENSIONS if ending not in known} <= others
    assert imagecodecs.JPEG2K.available


def test_arrays_of_objects_are_never_unpickled(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "touched",)  # type: ignore[return-value]

    np.save(tmp_path / "a.npy", np.array([Evil()], object))
    with pytest.raises(Unfit, match="never loaded"):
        decode_header((tmp_path / "a.npy").read_bytes())
    assert not (tmp_path / "touched").exists()
