"""Heat maps laid on the images that they are of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from engine.contract.inference.explanation import Box
from engine.data.decoding.idx import Bytes
from engine.data.decoding.view import View

MOST = 1600
"""The long side of what is drawn, in pixels at most: maps are coarse, and a photograph of 50 megapixels takes seconds
to write."""
_UNSEEN = 0.35
"""The brightness that is left of what the model was not given."""
_OPAQUE = 0.75
"""How much a heat map covers of the image where it is strongest."""
_COLOURS = np.array([(48, 18, 130), (50, 140, 250), (60, 220, 130), (250, 210, 50), (240, 80, 20), (170, 10, 10)])
"""From weak to strong, evenly spread."""

Floats = npt.NDArray[np.float32]


def seen_part(view: View, size: tuple[int, int], side: int) -> Box:
    """The part of an image of `size`, height and width, that the model was given in its square of `side`, in the
    image's pixels.
    """
    left, top, right, bottom = view.boxes(np.array([[0.0, 0.0, side, side]]), *size)[0].tolist()
    return left, top, right, bottom


def shown(pixels: Bytes) -> Bytes:
    """An image uint8 [h, w, C] for people, [h, w, 3], with a long side of at most `MOST`: of many channels the first
    three.
    """
    pixels = pixels[..., :3] if pixels.shape[2] >= 3 else pixels[..., :1].repeat(3, 2)
    height, width = pixels.shape[:2]
    scale = MOST / max(height, width)
    if scale >= 1:
        return np.ascontiguousarray(pixels)
    size = (max(1, round(height * scale)), max(1, round(width * scale)))
    image = torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1)[None]
    small = functional.interpolate(image, size, mode="bilinear", antialias=True)[0].permute(1, 2, 0)
    return np.ascontiguousarray(small.numpy())


def laid_back(
    heat: Tensor, view: View, size: tuple[int, int], drawn: tuple[int, int]
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """A map [s, s] of the square laid back on its image of `size`, height and width, that is drawn in another:
    float32 of the size `drawn`, and which of its pixels the model was given. Each pixel takes what is at its
    middle.
    """
    side = heat.shape[-1]
    rows = (torch.arange(drawn[0]) + 0.5) * size[0] / drawn[0] * view.scale_y + view.top
    columns = (torch.arange(drawn[1]) + 0.5) * size[1] / drawn[1] * view.scale_x + view.left
    seen = ((rows >= 0) & (rows <= side))[:, None] & ((columns >= 0) & (columns <= side))
    grid = torch.stack(torch.meshgrid(2 * columns / side - 1, 2 * rows / side - 1, indexing="xy"), -1).float()
    laid = functional.grid_sample(heat.cpu()[None, None], grid[None], padding_mode="border", align_corners=False)[0, 0]
    return (laid * seen).numpy(), seen.numpy()


def raw_map(heat: Floats) -> Bytes:
    """A map from 0 to 1 in grey."""
    return np.rint(heat * 255).astype(np.uint8)


def overlay(image: Bytes, heat: Floats, seen: npt.NDArray[np.bool_]) -> Bytes:
    """The image uint8 [h, w, 3] under its map [h, w], the colour the denser the stronger it is; what was not seen is
    dark.
    """
    steps = np.linspace(0, 1, len(_COLOURS))
    colours = np.stack([np.interp(heat, steps, _COLOURS[:, band]) for band in range(3)], 2)
    share = (_OPAQUE * np.sqrt(heat))[..., None]
    laid = image * np.where(seen, 1.0, _UNSEEN)[..., None] * (1 - share) + colours * share
    return np.rint(laid).astype(np.uint8)


def side_by_side(images: list[Bytes]) -> Bytes:
    """Images of one height next to each other, with a white gap."""
    gap = np.full((images[0].shape[0], max(2, images[0].shape[1] // 50), 3), 255, np.uint8)
    parts = [part for image in images for part in (image, gap)]
    return np.concatenate(parts[:-1], 1)
