"""Drawing of heat maps over their images."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from engine.contract.inference.explanation import Box
from engine.data.decoding.idx import Bytes
from engine.data.decoding.view import View

MAX_SIDE = 1600
"""Maximum long side of drawings in pixels; maps are coarse, and large photographs take seconds to write."""
_DIMMED = 0.35
"""Brightness of parts that the model was not given."""
_OPACITY = 0.75
"""Opacity of the strongest part of a heat map."""
_COLORS = np.array([(48, 18, 130), (50, 140, 250), (60, 220, 130), (250, 210, 50), (240, 80, 20), (170, 10, 10)])
"""Colors from weak to strong, evenly spaced."""

Floats = npt.NDArray[np.float32]


def visible_box(view: View, size: tuple[int, int], side: int) -> Box:
    """Return the part of an image of `size` (height, width) that the model was given in its square, in image pixels."""
    left, top, right, bottom = view.boxes(np.array([[0.0, 0.0, side, side]]), *size)[0].tolist()
    return left, top, right, bottom


def to_rgb(pixels: Bytes) -> Bytes:
    """Convert an image uint8 [h, w, C] to RGB of at most `MAX_SIDE`, with the first three of many channels."""
    pixels = pixels[..., :3] if pixels.shape[2] >= 3 else pixels[..., :1].repeat(3, 2)
    height, width = pixels.shape[:2]
    scale = MAX_SIDE / max(height, width)
    if scale >= 1:
        return np.ascontiguousarray(pixels)
    size = (max(1, round(height * scale)), max(1, round(width * scale)))
    image = torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1)[None]
    small = functional.interpolate(image, size, mode="bilinear", antialias=True)[0].permute(1, 2, 0)
    return np.ascontiguousarray(small.numpy())


def project(
    heat: Tensor, view: View, size: tuple[int, int], drawn: tuple[int, int]
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Project a map [s, s] of the model's square onto its image, drawn with the size `drawn`.

    Returns the map, float32, and a mask of the pixels that the model was given. Values are sampled at pixel centers.
    """
    side = heat.shape[-1]
    rows = (torch.arange(drawn[0]) + 0.5) * size[0] / drawn[0] * view.scale_y + view.top
    columns = (torch.arange(drawn[1]) + 0.5) * size[1] / drawn[1] * view.scale_x + view.left
    is_visible = ((rows >= 0) & (rows <= side))[:, None] & ((columns >= 0) & (columns <= side))
    grid = torch.stack(torch.meshgrid(2 * columns / side - 1, 2 * rows / side - 1, indexing="xy"), -1).float()
    projected = functional.grid_sample(heat.cpu()[None, None], grid[None], padding_mode="border", align_corners=False)[
        0, 0
    ]
    return (projected * is_visible).numpy(), is_visible.numpy()


def raw_map(heat: Floats) -> Bytes:
    """Convert a map from 0 to 1 to gray levels."""
    return np.rint(heat * 255).astype(np.uint8)


def overlay(image: Bytes, heat: Floats, is_visible: npt.NDArray[np.bool_]) -> Bytes:
    """Blend a map [h, w] over its image uint8 [h, w, 3], more opaque if stronger; unseen parts are dimmed."""
    steps = np.linspace(0, 1, len(_COLORS))
    colors = np.stack([np.interp(heat, steps, _COLORS[:, band]) for band in range(3)], 2)
    opacity = (_OPACITY * np.sqrt(heat))[..., None]
    projected = image * np.where(is_visible, 1.0, _DIMMED)[..., None] * (1 - opacity) + colors * opacity
    return np.rint(projected).astype(np.uint8)


def side_by_side(images: list[Bytes]) -> Bytes:
    """Concatenate images of equal height with a white gap."""
    gap = np.full((images[0].shape[0], max(2, images[0].shape[1] // 50), 3), 255, np.uint8)
    parts = [piece for image in images for piece in (image, gap)]
    return np.concatenate(parts[:-1], 1)
