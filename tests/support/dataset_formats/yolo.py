"""Writer of YOLO folders."""

from __future__ import annotations

from pathlib import Path

from tests.support.dataset_formats.truth import TrueImage, TrueObject, Truth

VARIANTS = (
    "plain",
    "splits",
    "roboflow",
    "nested",
    "beside",
    "lists",
    "darknet",
    "commas",
    "utf16",
    "poses",
    "outlines",
    "scored",
)
KIND = "boxes"
WITHOUT_SPLITS = ("plain", "beside")


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write images and YOLO label files in the layout `variant`. All layouts but "plain" and "beside" have splits."""
    encoding = "utf-16" if variant == "utf16" else "utf-8"
    places = {image: _get_paths(image, variant) for image in truth.images}
    for image, (image_at, text_at) in places.items():
        image.save(folder / image_at)
        lines = [_make_line(each, image, truth, variant) for each in image.objects]
        _save(folder / text_at, "\n".join(lines) + "\n" * bool(lines), encoding)
    if variant in ("lists", "darknet"):
        for split in ("train", "val"):
            listed = [places[image][0] for image in truth.get_images(split)]
            _save(folder / f"{split}.txt", "".join(f"data/{path}\n" for path in listed), encoding)
    if variant == "darknet":
        content = (
            f"classes = {len(truth.classes)}\ntrain = data/train.txt\nvalid = data/val.txt\nnames = data/obj.names\n"
        )
        _save(folder / "obj.data", content, encoding)
        _save(folder / "obj.names", "\n".join(truth.classes), encoding)
    elif variant in ("plain", "beside"):
        _save(folder / "classes.txt", "\n".join(truth.classes), encoding)
    else:
        _save(folder / "data.yaml", _make_data_yaml(truth, variant), encoding)


def _get_paths(image: TrueImage, variant: str) -> tuple[str, str]:
    """Return the paths of an image and its text file in the layout of a variant."""
    file, text = f"{image.name}.png", f"{image.name}.txt"
    if variant == "plain":
        return f"images/{file}", f"labels/{text}"
    if variant == "beside":
        return file, text
    if variant == "darknet":
        return f"obj_train_data/{file}", f"obj_train_data/{text}"
    if variant == "roboflow":
        split = {"val": "valid"}.get(image.split, image.split)
        return f"{split}/images/{file}", f"{split}/labels/{text}"
    if variant == "lists":
        part = f"part_{len(image.objects)}"
        return f"images/{part}/{file}", f"labels/{part}/{text}"
    deeper = f"/day_{len(image.objects)}/camera" if variant == "nested" and image.objects else ""
    return f"images/{image.split}{deeper}/{file}", f"labels/{image.split}{deeper}/{text}"


def _make_data_yaml(truth: Truth, variant: str) -> str:
    """Return the contents of data.yaml for a variant."""
    train, val = {
        "lists": ("train.txt", "val.txt"),
        "roboflow": ("../train/images", "../valid/images"),
        "nested": ("/home/somebody/pets/images/train", "/home/somebody/pets/images/val"),
    }.get(variant, ("images/train", "images/val"))
    shape = "kpt_shape: [2, 3]\n" if variant == "poses" else ""
    names = "".join(f"  {number}: {name}\n" for number, name in enumerate(truth.classes))
    return f"path: ../datasets/pets\ntrain: {train}\nval: {val}\n{shape}names:\n{names}"


def _make_line(each: TrueObject, image: TrueImage, truth: Truth, variant: str) -> str:
    left, top, right, bottom = each.box
    sides = (right - left) / image.width, (bottom - top) / image.height
    values: list[float] = [(left + right) / 2 / image.width, (top + bottom) / 2 / image.height, *sides]
    if variant == "poses":
        values += [left / image.width, top / image.height, 2, 0, 0, 0]
    elif variant == "outlines":
        values = [share for x, y in each.polygon for share in (x / image.width, y / image.height)]
    elif variant == "scored":
        values.append(0.75)
    return ("," if variant == "commas" else " ").join(map(str, (truth.classes.index(each.name), *values)))


def _save(path: Path, content: str, encoding: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding)
