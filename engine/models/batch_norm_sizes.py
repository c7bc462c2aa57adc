"""The image sizes at which BatchNorm gets a single value per channel from one image, learned without memory."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from engine.contract.catalogue import ANY_SIZE
from engine.torch_compat import BatchNorm

_TRIES = 8


def lone_size(model: nn.Module, channels: int, *, smallest: int, usual: int) -> int:
    """Return the largest side of square images of which some BatchNorm gets one value per channel.

    ANY_SIZE if it gets no more of larger ones, as behind a pooling of the full map; 0 if there is none at sizes from
    `smallest` on. The model is on the meta device, and takes images of the `usual` size.
    """
    if not any(isinstance(layer, BatchNorm) for layer in model.modules()):
        return 0
    single = {layer for layer, side in _map_sides(model, channels, smallest).items() if side == 1}
    if not single:
        return 0
    sides = _map_sides(model, channels, usual)
    pooled = {layer for layer in single if sides.get(layer, 1) == 1}
    if pooled:
        larger = _map_sides(model, channels, 4 * usual)
        return ANY_SIZE if any(larger.get(layer, 1) == 1 for layer in pooled) else usual
    size = max(usual // sides[layer] for layer in single)
    if size % 32 == 0:  # the usual stride, which divides the image size
        return size
    tried = range(size, max(smallest, size - _TRIES), -1)
    return next((each for each in tried if 1 in _map_sides(model, channels, each).values()), smallest)


def _map_sides(model: nn.Module, channels: int, image_size: int) -> dict[int, int]:
    """Return the longer side of the smallest map that each BatchNorm normalizes, by the layer's number."""
    found: dict[int, int] = {}

    def note(layer: int, _: nn.Module, given: tuple[Tensor, ...]) -> None:
        side = max(given[0].shape[2:], default=1)
        found[layer] = min(side, found.get(layer, side))

    layers = [layer for layer in model.modules() if isinstance(layer, BatchNorm)]
    hooks = [layer.register_forward_pre_hook(partial(note, number)) for number, layer in enumerate(layers)]
    images = torch.zeros(2, channels, image_size, image_size, device="meta")
    if not _runs(model.train(), images):
        _runs(model.eval(), images)
    for hook in hooks:
        hook.remove()
    return found


def _runs(model: nn.Module, images: Tensor) -> bool:
    """Run the model as far as it goes: some need targets, or numbers that the meta device lacks."""
    try:
        with torch.no_grad():
            model(images)
    except Exception:
        return False  # the maps up to here are noted
    return True
