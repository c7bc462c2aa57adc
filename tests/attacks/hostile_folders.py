"""Small dataset folders that each contain one hostile file or link.

`FOLDERS` maps a name to its `Hostile`.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import socket
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from tests.support.clouds import make_scene, write_las, write_ply
from tests.support.images import write_idx, write_image, write_noise

GIB = 1 << 30


class Hostile(NamedTuple):
    """Hostile dataset folder.

    `kind` is the kind of annotations to look for. `make` writes the dataset into an empty folder. `culprit` is a text
    that the inspector's report must contain, such as a file name, or "" if the folder is readable.
    """

    kind: str
    make: Callable[[Path], None]
    culprit: str


# Valid folders of each kind


def write_class_folders(folder: Path) -> None:
    for name, color in (("cats", (200, 30, 30)), ("dogs", (30, 30, 200))):
        for number in range(4):
            write_image(folder / name / f"{number}.png", color)


def write_jpegs(folder: Path) -> None:
    for name in ("cats", "dogs"):
        for number in range(4):
            write_noise(folder / name / f"{number}.jpg", number)


def write_masks(folder: Path) -> None:
    for number in range(4):
        write_image(folder / "images" / f"{number}.png")
        mask = np.zeros((16, 20), np.uint8)
        mask[:8] = 1 + number % 2
        _write_mask(folder / "masks" / f"{number}.png", mask)


def _write_mask(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path)


def write_yolo(folder: Path) -> None:
    for number in range(4):
        write_image(folder / "images" / f"{number}.png")
        path = folder / "labels" / f"{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("0 0.5 0.5 0.2 0.2\n1 0.3 0.3 0.2 0.2\n")


def write_voc(folder: Path) -> None:
    for number in range(4):
        write_image(folder / "images" / f"{number}.png")
        path = folder / "annotations" / f"{number}.xml"
        path.parent.mkdir(exist_ok=True)
        box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
        path.write_text(f"<annotation><object><name>cat</name>{box}</object></annotation>")


def write_kitti(folder: Path) -> None:
    for number in range(4):
        write_image(folder / "images" / f"{number}.png")
        path = folder / "labels" / f"{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("Car 0 0 0 1 1 9 9 0 0 0 0 0 0 0\n")


def coco_content() -> dict[str, list[dict[str, object]]]:
    outline = [[1, 1, 9, 1, 9, 9, 1, 9]]
    return {
        "images": [{"id": n, "file_name": f"{n}.png", "width": 20, "height": 16} for n in range(4)],
        "annotations": [
            {"image_id": n, "category_id": 1, "bbox": [1, 1, 8, 8], "segmentation": outline} for n in range(4)
        ],
        "categories": [{"id": 1, "name": "cat"}],
    }


def write_coco(folder: Path) -> None:
    for number in range(4):
        write_image(folder / "images" / f"{number}.png")
    (folder / "annotations.json").write_text(json.dumps(coco_content()))


def write_coco_runs(folder: Path) -> None:
    """Create a COCO dataset with splits, compressed and uncompressed run lengths, a crowd, and a supercategory."""
    for split in ("train", "val"):
        content = coco_content()
        runs = {"size": [16, 20], "counts": [33, 8, 8, 8, 263]}, {"size": [16, 20], "counts": "Q1880o7"}
        for number, annotation in enumerate(content["annotations"]):
            annotation |= {"id": number, "area": 64.0, "iscrowd": number % 2, "segmentation": runs[number % 2]}
        content["categories"] += [{"id": 2, "name": "dog", "supercategory": "cat"}]
        content |= {"info": {"year": 2017}, "licenses": [{"id": 1, "name": "none"}]}
        for number in range(4):
            write_image(folder / split / f"{number}.png")
        (folder / split / "_annotations.coco.json").write_text(json.dumps(content))


def write_yaml(folder: Path) -> None:
    write_yolo(folder)
    (folder / "data.yaml").write_text(
        "path: .\ntrain: images\nval: list.txt\nnc: 2\nnames: {0: cat, 1: dog}\ndownload: ''\nkpt_shape: [17, 3]\n"
    )
    (folder / "list.txt").write_text("images/0.png\nimages/1.png\n")


def write_edges(folder: Path) -> None:
    for number in range(4):
        write_image(folder / "images" / f"{number}.png")
        edges = np.zeros((16, 20), np.uint8)
        edges[8] = 255
        _write_mask(folder / "edges" / f"{number}.png", edges)


def write_mats(folder: Path) -> None:
    """Create a dataset of edge maps in BSDS500's format."""
    from scipy.io import savemat

    for number in range(4):
        write_image(folder / "images" / f"{number}.png")
        boundaries = np.zeros((16, 20), np.uint8)
        boundaries[8] = 1
        cells = np.empty((1, 2), object)
        for person in range(2):
            cells[0, person] = {"Segmentation": boundaries.astype(np.uint16), "Boundaries": boundaries}
        path = folder / "groundTruth" / f"{number}.mat"
        path.parent.mkdir(exist_ok=True)
        savemat(path, {"groundTruth": cells}, do_compression=True)


def write_json_table(folder: Path) -> None:
    for number in range(4):
        write_image(folder / f"{number}.png")
    (folder / "labels.json").write_text(json.dumps({f"{n}.png": ["a", "b"] if n % 2 else ["a"] for n in range(4)}))


def write_json_rows(folder: Path) -> None:
    """Create images and labels.json, with the labels and the split of each image.

    The labels of an image are a mapping of names to numbers or booleans, or a list of names.
    """
    rows = [
        {
            "file": f"{n}.png",
            "labels": {"a": n % 2, "b": True} if n < 2 else ["a", "b"],
            "split": "val" if n else "train",
        }
        for n in range(4)
    ]
    for number in range(4):
        write_image(folder / f"{number}.png")
    (folder / "labels.json").write_text(json.dumps(rows))


_DEFINITION = "esri_model_definition.emd"


def write_tiles(folder: Path) -> None:
    """Create a dataset of tiles as ArcGIS exports them in the format MultiLabeled_Tiles."""
    for number in range(4):
        write_image(folder / "images" / f"{number}.png")
        path = folder / "labels" / f"{number}.xml"
        path.parent.mkdir(exist_ok=True)
        objects = "".join(f"<object><name>{name}</name></object>" for name in range(1, 2 + number % 2))
        path.write_text(f"<annotation><filename>{number}.png</filename>{objects}</annotation>")
    classes = [{"Value": 1, "Name": "field", "Color": [1, 2, 3]}, {"Value": 2, "Name": "wood", "Color": [4, 5, 6]}]
    (folder / _DEFINITION).write_text(json.dumps({"MetaDataMode": "MultiLabeled_Tiles", "Classes": classes}))


def write_definition(folder: Path) -> None:
    """Create masks with an ArcGIS definition file that names their values."""
    write_masks(folder)
    classes = [{"Value": value, "Name": f"class {value}", "Color": [value, 2, 3]} for value in range(3)]
    (folder / _DEFINITION).write_text(json.dumps({"MetaDataMode": "Classified_Tiles", "Classes": classes}))


def write_statistics(folder: Path) -> None:
    """Create multispectral images with ArcGIS's statistics for each band."""
    write_bands(folder)
    bands = [{"Min": 0, "Max": 4000, "Mean": 2000.5, "StdDev": 1000.0} for _ in range(5)]
    (folder / _DEFINITION).write_text(json.dumps({"AllTilesStats": bands, "Classes": []}))
    state = [{"Min": 0, "Max": 4000, "M1": 2000.5, "M2": 4e9, "Num": 4000} for _ in range(5)]
    (folder / "esri_accumulated_stats.json").write_text(json.dumps({"BandStatsState": state}))


def write_table(folder: Path) -> None:
    for number in range(4):
        write_image(folder / f"{number}.png")
    (folder / "labels.csv").write_text(
        "file,labels\n" + "".join(f"{n}.png,{'a;b' if n % 2 else 'a'}\n" for n in range(4))
    )


def write_clouds(folder: Path) -> None:
    for number in range(3):
        places, classes = make_scene(number, 60)
        write_ply(folder / f"{number}.ply", places, label=classes)


def write_las_clouds(folder: Path, ending: str = ".las") -> None:
    for number in range(3):
        places, classes = make_scene(number, 60)
        write_las(folder / f"{number}{ending}", places, classes + 1)


def write_idx_files(folder: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 8, 8), np.uint8)
    write_idx(folder / "train-images-idx3-ubyte", pixels)
    write_idx(folder / "train-labels-idx1-ubyte", np.arange(20, dtype=np.uint8) % 2)


def write_bands(folder: Path) -> None:
    import tifffile

    for number in range(4):
        (folder / "ab"[number % 2]).mkdir(exist_ok=True)
        values = np.random.default_rng(number).integers(0, 4000, (16, 20, 5)).astype(np.uint16)
        tifffile.imwrite(folder / "ab"[number % 2] / f"{number}.tif", values, photometric="minisblack")


# Contents


def _write_fifo(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def _write_zeros_link(path: Path) -> None:
    """Create a link to /dev/zero, which can be read forever."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def make_socket(path: Path) -> None:
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listening:
        parent = os.open(path.parent, os.O_RDONLY)
        try:
            # The full path of a socket may have at most 107 bytes.
            listening.bind(f"/proc/self/fd/{parent}/{path.name}")
        finally:
            os.close(parent)


def _write_sparse_file(path: Path, length: int, head: bytes = b"", end: bytes = b"") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as stream:
        stream.write(head)
        stream.truncate(length)
        stream.seek(length - len(end))
        stream.write(end)


def _make_changed(honest: Callable[[Path], None], *changes: Callable[[Path], object]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        honest(folder)
        for change in changes:
            change(folder)

    return make


def _make_replaced(honest: Callable[[Path], None], name: str, what: Callable[[Path], object]) -> Callable[[Path], None]:
    return _make_changed(honest, lambda folder: what(folder / name))


def _write_text(content: str | bytes | Callable[[], str | bytes]) -> Callable[[Path], object]:
    """Return a function that writes `content` to a file.

    If `content` is a function, its result is written. Large content thus exists only while it is needed.
    """

    def write(path: Path) -> None:
        data = content() if callable(content) else content
        path.write_bytes(data.encode() if isinstance(data, str) else data)

    return write


def _make_expanding_yaml(key: str) -> str:
    """Return a YAML document that ends with `key` and whose aliases expand to 10^9 words."""
    levels = ["a0: &a0 [" + ",".join(["lol"] * 10) + "]"]
    levels += [f"a{n}: &a{n} [" + ",".join([f"*a{n - 1}"] * 10) + "]" for n in range(1, 9)]
    return "\n".join(levels) + f"\n{key}"


def _make_merging_yaml() -> str:
    levels = ["a0: &a0 {x: y}"]
    levels += [f"a{n}: &a{n} {{<<: [" + ",".join([f"*a{n - 1}"] * 10) + "]}" for n in range(1, 9)]
    return "\n".join(levels) + "\nnames: [a, b]\n"


def _make_mat(*elements: bytes) -> bytes:
    head = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<HH", 0x0100, 0x4D49)
    return head + b"".join(elements)


def _make_mat_element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content + b"\0" * (-len(content) % 8)


def _make_mat_matrix(kind: int, shape: tuple[int, ...], name: bytes, *content: bytes) -> bytes:
    parts = [
        _make_mat_element(6, struct.pack("<II", kind, 0)),
        _make_mat_element(5, struct.pack(f"<{len(shape)}i", *shape)),
        _make_mat_element(1, name),
        *content,
    ]
    return _make_mat_element(14, b"".join(parts))


def make_mat_of_structs_without_fields() -> bytes:
    """Return a MAT file of a few hundred bytes that declares 2^31 structs without fields."""
    fields = struct.pack("<HHI", 5, 4, 32) + _make_mat_element(1, b"")
    return _make_mat(_make_mat_matrix(2, (46_340, 46_340), b"groundTruth", fields))


def make_mat_bomb() -> bytes:
    """Return a MAT file of 4 MB that decompresses to 4 GiB of zeros."""
    squeeze = zlib.compressobj(9)
    inside = [squeeze.compress(struct.pack("<II", 14, 0xFFFFFF00))]
    inside.append(
        squeeze.compress(
            _make_mat_element(6, struct.pack("<II", 9, 0))
            + _make_mat_element(5, struct.pack("<2i", 65_536, 60_000))
            + _make_mat_element(1, b"groundTruth")
            + struct.pack("<II", 2, 65_536 * 60_000)
        )
    )
    zeros = bytes(1 << 24)
    inside += [squeeze.compress(zeros) for _ in range(234)]
    inside.append(squeeze.flush())
    packed = b"".join(inside)
    return _make_mat(struct.pack("<II", 15, len(packed)) + packed)


def make_mat_of_sparse_layer() -> bytes:
    """Return a BSDS500 file whose edges are a sparse matrix of 40,000 x 40,000."""
    from scipy.io import savemat
    from scipy.sparse import csc_matrix

    cell = np.empty((1, 1), object)
    cell[0, 0] = {"Boundaries": csc_matrix((40_000, 40_000), dtype=np.float64)}
    stream = io.BytesIO()
    savemat(stream, {"groundTruth": cell})
    return stream.getvalue()


def _make_ply(*elements: str) -> bytes:
    return f"ply\nformat binary_little_endian 1.0\n{chr(10).join(elements)}\nend_header\n".encode()


_VERTEX = "property float x\nproperty float y\nproperty float z\nproperty uchar label"


def _make_damaged_las(ending: str, at: int, kind: str, value: int) -> Callable[[Path], None]:
    """Return a function that writes a dataset of point clouds and sets a number in the header of one file to `value`.

    `ending` is the suffix of the files, `at` the byte offset of the number, and `kind` its format for `struct.pack`.
    """

    def make(folder: Path) -> None:
        write_las_clouds(folder, ending)
        path = folder / f"1{ending}"
        content = bytearray(path.read_bytes())
        struct.pack_into(f"<{kind}", content, at, value)
        path.write_bytes(content)

    return make


def _write_laz_of_many_chunks(folder: Path) -> None:
    write_las_clouds(folder, ".laz")
    path = folder / "1.laz"
    content = bytearray(path.read_bytes())
    points = struct.unpack_from("<I", content, 96)[0]
    table = struct.unpack_from("<q", content, points)[0]
    struct.pack_into("<I", content, table + 4, 0xFFFF_FFF0)
    path.write_bytes(content)


def write_laz_of_huge_chunk(folder: Path) -> None:
    """Write a LAZ file that declares chunks of 2^31 points. A decoder might allocate memory for them."""
    write_las_clouds(folder, ".laz")
    path = folder / "1.laz"
    content = bytearray(path.read_bytes())
    record = content.index(b"laszip encoded") - 2 + 54
    struct.pack_into("<I", content, record + 12, 0x7FFF_FFFF)
    path.write_bytes(content)


def _cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def make_zero_png(width: int, height: int, color: int = 0) -> bytes:
    """Return a valid PNG of PNG's color type `color`, whose values are all 0, with 8 bits per value.

    Its size is about a thousandth of that of the pixels.
    """

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    row = bytes(1 + width * {0: 1, 2: 3, 6: 4}[color])
    squeeze = zlib.compressobj(9)
    packed = b"".join([squeeze.compress(row) for _ in range(height)]) + squeeze.flush()
    head = struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def _write_huge_tiff(folder: Path, bands: int) -> None:
    """Write a TIFF that declares a single tile of 13,000 x 13,000 pixels with `bands` bands."""
    import tifffile

    write_bands(folder)
    path = folder / "a" / "0.tif"
    values = np.zeros((16, 16, bands), np.uint16)
    planes = {"planarconfig": "contig"} if bands > 1 else {}
    tifffile.imwrite(path, values, photometric="minisblack", compression="zlib", tile=(16, 16), **planes)
    with tifffile.TiffFile(path, mode="r+") as file:
        tags = file.pages.first.tags
        tags["ImageWidth"].overwrite(13_000)
        tags["ImageLength"].overwrite(13_000)


def _write_many_pages(folder: Path) -> None:
    """Write a TIFF that repeats its header and first tags 2,000 times. Tifffile would search for pages for hours."""
    write_bands(folder)
    path = folder / "a" / "0.tif"
    content = path.read_bytes()
    path.write_bytes(content[:184] + content[6:184] * 2000 + content[184:])


def _write_random_masks(folder: Path) -> None:
    """Write 16-bit masks that contain 65,535 different values in random order."""
    write_masks(folder)
    values = np.random.default_rng(0).permutation(np.resize(np.arange(1, 65_536), 1400 * 1400))
    for number in range(4):
        write_image(folder / "images" / f"{number}.png", size=(1400, 1400))
        _write_mask(folder / "masks" / f"{number}.png", values.reshape(1400, 1400).astype(np.uint16))


def _make_outlined(segmentation: object, **more: object) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        write_coco(folder)
        content = coco_content()
        content["annotations"][0] |= {"segmentation": segmentation} | more
        (folder / "annotations.json").write_text(json.dumps(content))

    return make


def _make_outlined_without_box(segmentation: object) -> Callable[[Path], None]:
    return _make_outlined(segmentation, bbox=None)


def _zigzag(points: int) -> list[list[float]]:
    return [[c for n in range(points) for c in (float(n % 20), -1e6 if n % 2 else 1e6)]]


def _write_tall_zigzag(folder: Path) -> None:
    """Write a polygon with 100,000 edges, each of which crosses the full height of 8,000 rows."""
    write_coco(folder)
    write_image(folder / "images" / "0.png", size=(20, 8000))
    content = coco_content()
    content["images"][0] |= {"height": 8000}
    content["annotations"][0] |= {"segmentation": _zigzag(100_000)}
    (folder / "annotations.json").write_text(json.dumps(content))


def _write_many_wide_outlines(folder: Path) -> None:
    """Write 20,000 polygons, each of which surrounds an image of 4,000 x 3,000 pixels."""
    write_coco(folder)
    (folder / "images" / "0.png").write_bytes(make_zero_png(4000, 3000))
    content = coco_content()
    content["images"][0] |= {"width": 4000, "height": 3000}
    outline = [[0, 0, 4000, 0, 4000, 3000, 0, 3000]]
    content["annotations"] += [
        {"image_id": 0, "category_id": 1, "bbox": [0, 0, 4000, 3000], "segmentation": outline} for _ in range(20_000)
    ]
    (folder / "annotations.json").write_text(json.dumps(content))


def _write_many_categories(folder: Path) -> None:
    write_coco(folder)
    content = coco_content()
    content["categories"] += [{"id": n, "name": f"class {n}"} for n in range(2, 90_000)]
    (folder / "annotations.json").write_text(json.dumps(content))


def _write_many_ignored_regions(folder: Path) -> None:
    """Write 20,000 regions to ignore and 20,000 classes. A box per region and class would be 400 million boxes."""
    write_kitti(folder)
    lines = [f"c{n} 0 0 0 1 1 9 9 0 0 0 0 0 0 0" for n in range(20_000)]
    lines += ["DontCare 0 0 0 1 1 9 9 0 0 0 0 0 0 0"] * 20_000
    (folder / "labels" / "0.txt").write_text("\n".join(lines))


def _write_many_labels(folder: Path) -> None:
    """Write a table of 60,000 images with different labels.

    A matrix of images by labels would have 3.6 billion cells.
    """
    rows = "".join(f"{n}.png,label {n}\n" for n in range(60_000))
    for number in range(60_000):
        (folder / f"{number}.png").touch()
    (folder / "labels.csv").write_text("file,labels\n" + rows)


def _create_link_farm(folder: Path) -> None:
    """Create a chain of 26 folders, each with two links to the next. There are 2^26 paths to the last one."""
    write_class_folders(folder)
    farm = folder / "cats" / "farm"
    for number in range(27):
        (farm / str(number)).mkdir(parents=True)
        if number:
            for name in ("a", "b"):
                (farm / str(number - 1) / name).symlink_to(f"../{number}")
    write_image(farm / "26" / "last.png", (200, 30, 30))


def _create_link_farm_of_table(folder: Path) -> None:
    _create_link_farm(folder)
    write_table(folder)


def _create_upward_links(folder: Path) -> None:
    """Create links to the folder that contains them, so that paths can be infinitely long."""
    write_table(folder)
    for number in range(12):
        (folder / f"up{number}").symlink_to(".")


def _looping_link(folder: Path) -> None:
    write_class_folders(folder)
    (folder / "loop").symlink_to("loop")


def _looping_image(folder: Path) -> None:
    write_class_folders(folder)
    (folder / "cats" / "loop.png").symlink_to("loop.png")


def _create_deep_folders(folder: Path) -> None:
    """Create 1,900 nested folders."""
    write_class_folders(folder)
    current = os.open(folder / "cats", os.O_RDONLY)
    for _ in range(1900):
        os.mkdir("d", dir_fd=current)
        child = os.open("d", os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = child
    os.close(current)


def _make_idx_gz(name: str, *shape: int) -> Callable[[Path], None]:
    """Return a function that writes an MNIST dataset in which the file `name` is a compressed array of zeros.

    `shape` is the shape of the array.
    """

    def make(folder: Path) -> None:
        write_idx_files(folder)
        (folder / name.removesuffix(".gz")).unlink()
        with gzip.open(folder / name, "wb", compresslevel=1) as stream:
            stream.write(b"\0\0\x08" + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape))
            left = int(np.prod(shape, dtype=np.int64))
            while left > 0:
                stream.write(bytes(min(left, 1 << 24)))
                left -= 1 << 24

    return make


def _write_sparse_idx(folder: Path) -> None:
    """Write sparse files in MNIST's format that declare hundreds of millions of images and labels."""
    count = 400_000_000
    _write_sparse_file(folder / "train-labels-idx1-ubyte", count + 8, b"\0\0\x08\x01" + struct.pack(">I", count), b"\1")
    _write_sparse_file(
        folder / "train-images-idx3-ubyte", count * 16 + 16, b"\0\0\x08\x03" + struct.pack(">3I", count, 4, 4)
    )


def _write_sparse_twins(folder: Path) -> None:
    """Write a training image and a validation image of 300 GB as sparse files that look complete and equal."""
    head, end = make_zero_png(4, 4)[:60], b"\0\0\0\0IEND\xaeB`\x82"
    for split in ("train", "val"):
        write_class_folders(folder / split)
        _write_sparse_file(folder / split / "cats" / "huge.png", 300 * GIB, head, end)


def _write_postscript(folder: Path) -> None:
    """Write a PostScript program with the file name of an image. Pillow would let Ghostscript execute it."""
    write_class_folders(folder)
    (folder / "cats" / "0.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n{} loop\n%%EOF\n"
    )


FOLDERS: dict[str, Hostile] = {
    # YAML
    "yaml of a billion laughs": Hostile("boxes", _make_replaced(write_yolo, "data.yaml", _write_text(_make_expanding_yaml("names: *a8\n"))), "data.yaml"),
    "yaml of laughs within a name": Hostile("boxes", _make_replaced(write_yolo, "data.yaml", _write_text(_make_expanding_yaml("names: [*a8, b]\n"))), "data.yaml"),
    "yaml of merges": Hostile("boxes", _make_replaced(write_yolo, "data.yaml", _write_text(_make_merging_yaml())), "data.yaml"),
    "yaml with class 3 billion": Hostile("boxes", _make_replaced(write_yolo, "data.yaml", _write_text("names: {0: a, 3000000000: b}\n")), "data.yaml"),
    "yaml of brackets": Hostile("boxes", _make_replaced(write_yolo, "data.yaml", _write_text("names: " + "[" * 5000)), "data.yaml"),
    "yaml of 60 MB": Hostile("boxes", _make_replaced(write_yolo, "data.yaml", _write_text(lambda: "names:\n" + "- a\n" * 15_000_000)), "data.yaml"),
    # Devices and pipes
    "classes.txt without end": Hostile("masks", _make_replaced(write_masks, "classes.txt", _write_zeros_link), "classes.txt"),
    "classes.txt of yolo without end": Hostile("boxes", _make_replaced(write_yolo, "classes.txt", _write_zeros_link), "classes.txt"),
    "emd without end": Hostile("masks", _make_replaced(write_masks, "esri_model_definition.emd", _write_zeros_link), "esri_model_definition.emd"),
    "emd of bands without end": Hostile("classes", _make_replaced(write_bands, "esri_model_definition.emd", _write_zeros_link), "esri_model_definition.emd"),
    "labels.csv without end": Hostile("labels", _make_replaced(write_table, "labels.csv", _write_zeros_link), "labels.csv"),
    "labels.csv is a pipe": Hostile("labels", _make_replaced(write_table, "labels.csv", _write_fifo), "labels.csv"),
    "data.yaml is a pipe": Hostile("boxes", _make_replaced(write_yolo, "data.yaml", _write_fifo), "data.yaml"),
    "image is a pipe": Hostile("classes", _make_replaced(write_class_folders, "cats/0.png", _write_fifo), "0.png"),
    "image without end": Hostile("classes", _make_replaced(write_class_folders, "cats/0.png", _write_zeros_link), "0.png"),
    "image is a socket": Hostile("classes", _make_replaced(write_class_folders, "cats/0.png", make_socket), "0.png"),
    "tiff is a pipe": Hostile("classes", _make_replaced(write_bands, "a/0.tif", _write_fifo), "0.tif"),
    "mask is a pipe": Hostile("masks", _make_replaced(write_masks, "masks/1.png", _write_fifo), "1.png"),
    "mask without end": Hostile("masks", _make_replaced(write_masks, "masks/1.png", _write_zeros_link), "1.png"),
    "image of a mask is a pipe": Hostile("masks", _make_replaced(write_masks, "images/1.png", _write_fifo), "1.png"),
    "numbered mask is a pipe": Hostile("instances", _make_replaced(write_masks, "masks/1.png", _write_fifo), "1.png"),
    "edges are a pipe": Hostile("edges", _make_replaced(write_edges, "edges/1.png", _write_fifo), "1.png"),
    "edges without end": Hostile("edges", _make_replaced(write_edges, "edges/1.png", _write_zeros_link), "1.png"),
    "yolo's text is a pipe": Hostile("boxes", _make_replaced(write_yolo, "labels/1.txt", _write_fifo), "1.txt"),
    "yolo's text without end": Hostile("boxes", _make_replaced(write_yolo, "labels/1.txt", _write_zeros_link), "1.txt"),
    "kitti's text is a pipe": Hostile("boxes", _make_replaced(write_kitti, "labels/1.txt", _write_fifo), "1.txt"),
    "xml is a pipe": Hostile("boxes", _make_replaced(write_voc, "annotations/1.xml", _write_fifo), "1.xml"),
    "xml without end": Hostile("boxes", _make_replaced(write_voc, "annotations/1.xml", _write_zeros_link), "1.xml"),
    "coco's json is a pipe": Hostile("boxes", _make_replaced(write_coco, "annotations.json", _write_fifo), "annotations.json"),
    "image of coco is a pipe": Hostile("boxes", _make_replaced(write_coco, "images/1.png", _write_fifo), "1.png"),
    "cloud is a pipe": Hostile("points", _make_replaced(write_clouds, "1.ply", _write_fifo), "1.ply"),
    "las without end": Hostile("points", _make_replaced(write_las_clouds, "1.las", _write_zeros_link), "1.las"),
    "idx labels are a pipe": Hostile("classes", _make_replaced(write_idx_files, "train-labels-idx1-ubyte", _write_fifo), "train-labels-idx1-ubyte"),
    "idx images are a pipe": Hostile("classes", _make_replaced(write_idx_files, "train-images-idx3-ubyte", _write_fifo), "train-images-idx3-ubyte"),
    "list of names is a pipe": Hostile("boxes", _make_changed(write_yolo, lambda f: _write_fifo(f / "train.txt"), lambda f: (f / "data.yaml").write_text("names: [a, b]\ntrain: train.txt\n")), ""),
    "any file is a pipe": Hostile("files", _make_replaced(write_class_folders, "cats/0.png", _write_fifo), ""),
    # Headers that declare more data than there is
    "idx announces 5 GB": Hostile("classes", _make_replaced(write_idx_files, "train-images-idx3-ubyte", _write_text(b"\0\0\x08\x03" + struct.pack(">3I", 20, 16_384, 16_384))), "train-images-idx3-ubyte"),
    "idx unpacks to 3 GB": Hostile("classes", _make_idx_gz("train-images-idx3-ubyte.gz", 20, 12_288, 12_288), "train-images-idx3-ubyte.gz"),
    "idx labels unpack to 1 GB": Hostile("classes", _make_idx_gz("train-labels-idx1-ubyte.gz", 1 << 30), "train-labels-idx1-ubyte.gz"),
    "idx of holes": Hostile("classes", _write_sparse_idx, "train-"),
    "ply announces millions of wide points": Hostile("points", _make_replaced(write_clouds, "1.ply", _write_text(_make_ply("element vertex 900000", _VERTEX, *(f"property double p{n}" for n in range(1500))) + bytes(1 << 20))), "1.ply"),
    "ply announces faces": Hostile("points", _make_replaced(write_clouds, "1.ply", _write_text(_make_ply("element face 2000000000", "property list uchar int vertex_indices", "element vertex 3", _VERTEX) + bytes(100))), "1.ply"),
    "ply hides its header": Hostile("points", _make_replaced(write_clouds, "1.ply", _write_text(b"ply\nformat binary_little_endian 1.0\ncomment element vertex 1\ncomment end_header\nelement vertex 2000000000\n" + _VERTEX.encode() + b"\nproperty list uchar int v\nend_header\n" + bytes(100))), "1.ply"),
    "las announces points": Hostile("points", _make_damaged_las(".las", 247, "Q", 30_000_000_000), "1.las"),
    "las announces vlrs": Hostile("points", _make_damaged_las(".las", 100, "I", 4_000_000_000), "1.las"),
    "las announces evlrs": Hostile("points", _make_changed(_make_damaged_las(".las", 243, "I", 4_000_000_000), lambda f: None), ""),
    "laz announces points": Hostile("points", _make_damaged_las(".laz", 247, "Q", 4_000_000_000), "1.laz"),
    "laz announces a huge chunk": Hostile("points", write_laz_of_huge_chunk, "1.laz"),
    "laz announces chunks": Hostile("points", _write_laz_of_many_chunks, "1.laz"),
    "las is cut in half": Hostile("points", _make_changed(write_las_clouds, lambda f: _cut_in_half(f / "1.las")), "1.las"),
    "mat of structs without fields": Hostile("edges", _make_changed(write_edges, lambda f: (f / "edges" / "1.png").unlink(), lambda f: (f / "edges" / "1.mat").write_bytes(make_mat_of_structs_without_fields())), "1."),
    "mat of a bomb": Hostile("edges", _make_changed(write_edges, lambda f: (f / "edges" / "1.png").unlink(), lambda f: (f / "edges" / "1.mat").write_bytes(make_mat_bomb())), "1."),
    "mat of a sparse layer": Hostile("edges", _make_changed(write_edges, lambda f: (f / "edges" / "1.png").unlink(), lambda f: (f / "edges" / "1.mat").write_bytes(make_mat_of_sparse_layer())), "1."),
    "mat of holes": Hostile("edges", _make_changed(write_edges, lambda f: (f / "edges" / "1.png").unlink(), lambda f: _write_sparse_file(f / "edges" / "1.mat", 8 * GIB, _make_mat())), "1."),
    "tiff of endless pages": Hostile("classes", _write_many_pages, ""),
    "tiff of many bands": Hostile("classes", lambda f: _write_huge_tiff(f, 500), "0.tif"),
    "tiff of many tiles": Hostile("classes", lambda f: _write_huge_tiff(f, 1), "0.tif"),
    "png of 178 megapixels": Hostile("classes", _make_replaced(write_class_folders, "cats/0.png", _write_text(lambda: make_zero_png(13_300, 13_300, 2))), ""),
    "mask of 100 megapixels": Hostile("masks", _make_changed(write_masks, *((lambda f, n=n, k=k: (f / k / f"{n}.png").write_bytes(make_zero_png(10_000, 10_000))) for n in range(1) for k in ("images", "masks"))), ""),
    "mask of scribbles": Hostile("instances", _write_random_masks, "files in masks"),
    "mask of scribbles for classes": Hostile("masks", _write_random_masks, "files in masks"),
    # Text
    "csv of a huge field": Hostile("labels", _make_replaced(write_table, "labels.csv", _write_text('file,labels\n0.png,"' + "a" * 200_000 + '"\n')), ".csv"),
    "csv with a zero": Hostile("labels", _make_replaced(write_table, "labels.csv", _write_text(b"file,labels\n0.png,a\0b\n1.png,c\n")), ""),
    "json of brackets": Hostile("labels", _make_replaced(write_json_table, "labels.json", _write_text('[{"file": "0.png", "labels": ' + "[" * 200_000)), "labels.json"),
    "emd of brackets": Hostile("masks", _make_replaced(write_masks, "esri_model_definition.emd", _write_text("[" * 200_000)), "esri_model_definition.emd"),
    "coco of brackets": Hostile("boxes", _make_replaced(write_coco, "annotations.json", _write_text('{"images": [], "categories": [], "annotations": [{"image_id": 1, "category_id": 1, "segmentation": ' + "[" * 200_000)), "annotations.json"),
    "coco of holes": Hostile("boxes", _make_replaced(write_coco, "annotations.json", lambda p: _write_sparse_file(p, 30 * GIB, b'{"images" "annotations" "categories"')), "annotations.json"),
    "labels.csv of holes": Hostile("labels", _make_replaced(write_table, "labels.csv", lambda p: _write_sparse_file(p, 6 * GIB, b"file,labels\n")), "labels.csv"),
    "label for each image": Hostile("labels", _write_many_labels, "label"),
    "classes.txt of a million": Hostile("masks", _make_replaced(write_masks, "classes.txt", _write_text(lambda: "".join(f"c{n}\n" for n in range(1_000_000)))), "classes.txt"),
    "class with a name of 10 MB": Hostile("masks", _make_replaced(write_masks, "classes.txt", _write_text(lambda: "a\nb\n" + "c" * 10_000_000)), "10,000,000 characters"),
    "coco of 90,000 categories": Hostile("boxes", _write_many_categories, "89,993 more"),
    "kitti of regions and classes": Hostile("boxes", _write_many_ignored_regions, ""),
    # Outlines
    "runs of a huge image": Hostile("boxes", _make_outlined_without_box({"size": [1_000_000, 1_000_000], "counts": [0, 1_000_000_000_000]}), "png"),
    "runs that overflow": Hostile("boxes", _make_outlined_without_box({"size": [16, 20], "counts": [1 << 62, 1 << 62, 1 << 62, 320 + (1 << 62)]}), "png"),
    "runs beyond 64 bits": Hostile("boxes", _make_outlined_without_box({"size": [16, 20], "counts": [1 << 70]}), "png"),
    "packed runs without end": Hostile("instances", _make_outlined({"size": [16, 20], "counts": "o" * 3_000_000}), "0.png"),
    "polygon of tall sides": Hostile("instances", _write_tall_zigzag, "0.png"),
    "outlines around everything": Hostile("instances", _write_many_wide_outlines, "0.png"),
    "image of no finite size": Hostile("boxes", _make_replaced(write_coco, "annotations.json", _write_text(json.dumps(coco_content()).replace('"width": 20', '"width": 1e400'))), ""),
    "image with a zero in its name": Hostile("boxes", _make_replaced(write_coco, "annotations.json", _write_text(json.dumps(coco_content()).replace("0.png", "a\\u0000b/0.png"))), ""),
    # Links
    "looping link": Hostile("classes", _looping_link, "loop"),
    "looping image": Hostile("classes", _looping_image, "loop.png"),
    "links in 2^26 ways": Hostile("classes", _create_link_farm, ""),
    "links in 2^26 ways beside a table": Hostile("labels", _create_link_farm_of_table, ""),
    "links upwards": Hostile("labels", _create_upward_links, ""),
    "1,900 folders within each other": Hostile("classes", _create_deep_folders, ""),
    # Files that would be executed or read forever
    "twins of 300 GB": Hostile("classes", _write_sparse_twins, "huge.png"),
    "postscript": Hostile("classes", _write_postscript, "0.png"),
}  # fmt: skip
