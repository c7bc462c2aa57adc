"""Images with depth maps, or stereo images with disparities. Recognized but not supported. Torch-free."""

from __future__ import annotations

import os

from engine.data.decoding.reading import is_gray, open_image
from engine.data.formats.format import Confidence, Detection, Format
from engine.data.formats.shared.name_pairs import pair_folders
from engine.data.formats.shared.paired_folders import IMAGE_WORDS
from engine.data.formats.tree import Tree, suffix
from engine.data.splits import printable, sample_evenly
from engine.system.format import counted

LAYOUT = "Depth has folders of images and of depth or disparity; stereo has left and right."
REMEDY = "Footplate has no task for depth. To classify or segment the images, choose a folder without depth."
_DEPTH = (
    *("depth", "depths", "depth_map", "depth_maps", "disparity", "disparities", "disp", "disp_occ", "disp_occ_0"),
    *("disp_noc_0", "disp_noc", "disp0", "disp_0"),
)
_STEREO = (("left", "right"), ("image_2", "image_3"), ("im0", "im1"), ("view1", "view5"), ("image_left", "image_right"))
_CALIBRATION = ("calib", "calibration", "obj_map", "flow_occ")
_ENDINGS = (".png", ".tif", ".tiff", ".npy", ".pfm", ".exr", ".jpg")
_ARRAYS = (".npy", ".pfm", ".exr")
_SAMPLE = 8
"""Maximum number of files that are opened to find out if they are depth maps."""
_SUFFIXES = ("", "_depth", "_disp", "_10")


def detect(tree: Tree) -> list[Detection]:
    """Detect images with depth maps, or stereo images from two cameras.

    Footplate can't read them, so that the detection has no kinds of annotations, but a remedy.
    """
    image_words = {*IMAGE_WORDS, "left", "color", "colour"}
    for base in tree.walk(depth=2):
        image_folders = [name for name in tree.folders(base) if name.lower() in image_words]
        for depth in tree.named(_DEPTH, base):
            for name in image_folders:
                pairs = _pair_same_names(tree, os.path.join(base, name), os.path.join(base, depth))
                if pairs:
                    evidence = f"{counted(len(pairs), 'image')} with files in {printable(os.path.join(base, depth))}"
                    confidence = Confidence.LIKELY if _are_gray([path for _, path in pairs]) else Confidence.WEAK
                    return [Detection((), confidence, (evidence,), remedy=REMEDY)]
        for cameras in _STEREO:
            folders = tree.named(cameras, base)
            if len(folders) != 2:
                continue
            pairs = _pair_same_names(tree, *(os.path.join(base, name) for name in folders))
            others = set(map(str.lower, tree.folders(base))) - set(cameras)
            if pairs and others <= {*_DEPTH, *_CALIBRATION}:
                evidence = f"{counted(len(pairs), 'image')} in both {printable(folders[0])} and {printable(folders[1])}"
                confidence = Confidence.LIKELY if others else Confidence.WEAK  # left and right may be classes
                return [Detection((), confidence, (evidence,), remedy=REMEDY)]
    return []


def _pair_same_names(tree: Tree, images: str, others: str) -> list[tuple[str, str]]:
    """Pair the images in a folder with files of the same name in the folder `others`.

    Returns [] if most of these files have no image.
    """
    pairs = pair_folders(tree, [images], others, _ENDINGS, _SUFFIXES)
    return pairs.matched if 2 * len(pairs.matched) >= pairs.file_count else []


def _are_gray(paths: list[str]) -> bool:
    """Return True if most files in a sample are arrays, or images with one channel, like depth maps."""
    sample = sample_evenly(paths, _SAMPLE)
    return 2 * sum(map(_is_gray, sample)) > len(sample)


def _is_gray(path: str) -> bool:
    """Return True if a file is an array or a readable gray image."""
    if suffix(path) in _ARRAYS:
        return True
    try:
        with open_image(path) as image:
            return is_gray(image)
    except Exception:  # a broken file may raise nearly anything in a decoder
        return False


FORMAT = Format("depth", "images with depth or of two cameras", (), LAYOUT, detect)
