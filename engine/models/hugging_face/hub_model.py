"""Base of the models of transformers, which loads their weights and has the common parts of their losses."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers.utils import logging

from engine.contract.images import STEP, SizeLimits
from engine.models import weights
from engine.models.base import TaskError
from engine.models.model_surgery import find_first_conv, match_channels
from engine.models.tensor_detector import LoadableDetector
from engine.system.format import listed

logging.set_verbosity_error()
logging.disable_progress_bar()
_CLASS_LAYERS = ("class_embed", "score_head", "denoising_class_embed", "class_predictor", "empty_weight")
"""Parts of the names of weights whose shapes depend on the number of classes."""


class HubModel(LoadableDetector):
    """Mixin for models from transformers. It must precede the library's class in the list of base classes.

    Attributes:
        config: Configuration of the model in transformers.
        library_class: Class of the model in transformers.
        stride: Number that the sides of images must be a multiple of.
        channels: Number of image channels.
        pyramid: Name of the module that computes feature maps, or "".
    """

    config: Any
    library_class: ClassVar[Any]
    stride: int
    channels: int
    pyramid: str

    @property
    def accepted_sizes(self) -> SizeLimits:
        return SizeLimits(self.stride, self.stride)

    @property
    def size_step(self) -> int:
        """Step between image sizes that change during training, in pixels."""
        return self.stride if STEP % self.stride else STEP

    @property
    def size_limits(self) -> SizeLimits | None:
        return SizeLimits(self.size_step, self.size_step)

    def adapt_weights(self, state: weights.State) -> weights.State:
        """Return the weights `state`, adapted to the image size that this model was built for."""
        return state

    def load_initial(self, initial: weights.InitialWeights) -> None:
        """Load weights, whose names may be those of any version of transformers. Raises TaskError.

        Layers that depend on the classes are loaded only if all of them fit.
        """
        config = copy.deepcopy(self.config)
        # Without the counters of BatchNorm, which are integers of dimension 0.
        initial_state = {
            name: tensor for name, tensor in initial.state.items() if tensor.is_floating_point() or tensor.dim()
        }
        first_conv = find_first_conv(self)
        options = {"config": config, "ignore_mismatched_sizes": True, "output_loading_info": True}
        try:
            loaded, info = self.library_class.from_pretrained(
                None, state_dict=self.adapt_weights(initial_state), **options
            )
        except Exception as error:  # its type depends on the missing weights
            message = f"{initial.source} does not fit the model ({type(error).__name__})."
            raise TaskError(initial.field, message, "Choose weights of this model.") from error
        state, current = loaded.state_dict(), self.state_dict()
        mismatched = {name for name, *_ in info["mismatched_keys"]}
        missing = sorted(name for name in info["missing_keys"] if name in current and "num_batches_tracked" not in name)
        if first_conv is not None and f"{first_conv}.weight" in state:
            state[f"{first_conv}.weight"] = match_channels(state[f"{first_conv}.weight"], self.channels)
        missing += sorted(name for name in mismatched if not _depends_on_classes(name))
        if missing:
            message = (
                f"{initial.source} does not fit the model: {listed(missing, most=3)} missing or of a different shape."
            )
            raise TaskError(initial.field, message, "Choose weights of this model.")
        # If a layer for the classes does not fit, all of them keep their new weights.
        unchanged = {name: tensor for name, tensor in current.items() if mismatched and _depends_on_classes(name)}
        self.load_state_dict(state | unchanged)


def _depends_on_classes(name: str) -> bool:
    """Return True if the shape of the weights `name` depends on the number of classes."""
    return any(layer in name for layer in _CLASS_LAYERS)


def sum_by_kind(losses: dict[str, Tensor], kinds: tuple[str, ...]) -> dict[str, Tensor]:
    """Return the sum of the losses of each kind in `kinds`, by kind.

    For example, "loss_bbox_aux_0" is of the kind "bbox".
    """
    sums = {}
    for kind in kinds:
        losses_of_kind = [loss for name, loss in losses.items() if name.removeprefix("loss_").startswith(kind)]
        if losses_of_kind:
            sums[kind] = torch.stack([torch.as_tensor(loss).reshape(()) for loss in losses_of_kind]).sum()
    return sums


def derive_image_seeds(inputs: Tensor) -> list[int]:
    """Derive a seed for each image in `inputs` from its pixels."""
    bits = inputs.detach().float().contiguous().view(torch.int32)
    seeds: list[int] = bits.flatten(1).sum(1).tolist()
    return seeds


@contextmanager
def use_seed(seed: int, device: torch.device) -> Iterator[None]:
    """Context manager that seeds the random number generator of `device` and restores its state when it ends.

    Generators of other devices are not changed, since DataParallel uses them at the same time.
    """
    generator = torch.cuda.default_generators[device.index] if device.type == "cuda" else torch.default_generator
    state = generator.get_state()
    generator.manual_seed(seed)
    try:
        yield
    finally:
        generator.set_state(state)


def crop_masks(masks: Tensor, boxes: Tensor, size: tuple[int, int], side: int) -> Tensor:
    """Return the values of each mask in its box, on a grid with `side` cells on each side, [k, side * side].

    The masks [k, h, w] cover images of the height and width `size`, and the boxes [k, 4] are in pixels of these images.
    torchvision's `paste_masks_in_image` is the inverse: it pads masks by a cell, enlarges the boxes accordingly, and
    rounds them to pixels, including both ends.
    """
    half_sides = (boxes[:, 2:] - boxes[:, :2]) / 2
    centers, half_sides = boxes[:, :2] + half_sides, half_sides * (side + 2) / side
    first_pixels = (centers - half_sides).trunc()
    extent = (centers + half_sides).trunc() - first_pixels + 1
    cells = (torch.arange(side, device=boxes.device, dtype=boxes.dtype) + 1.5) / (side + 2)
    height, width = size
    columns = (first_pixels[:, :1] + cells * extent[:, :1]) / width
    rows = (first_pixels[:, 1:] + cells * extent[:, 1:]) / height
    grid = torch.stack([columns[:, None].expand(-1, side, -1), rows[:, :, None].expand(-1, -1, side)], 3)
    values = nn.functional.grid_sample(
        masks[:, None], 2 * grid.to(masks.dtype) - 1, padding_mode="border", align_corners=False
    )
    return values.flatten(1)
