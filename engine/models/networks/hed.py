"""Holistically-nested edge detection: Xie and Tu, ICCV 2015."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.models.networks.vgg_stages import WIDTHS, activations, vgg16_stages


class HedHead(nn.Module):
    """Side outputs, one for each feature map of `widths` channels, and their weighted fusion (section 2.2,
    "Formulation").
    """

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        sides = [nn.Conv2d(width, 1, 1) for width in widths]
        for side in sides:
            nn.init.normal_(side.weight, std=0.01)
            nn.init.zeros_(side.bias)  # type: ignore[arg-type]
        self.side = nn.ModuleList(sides)
        self.fuse = nn.Conv2d(len(widths), 1, 1)
        # Section 4.1, "Model parameters": the fusion begins as the mean of the side outputs.
        nn.init.constant_(self.fuse.weight, 1 / len(widths))
        nn.init.zeros_(self.fuse.bias)  # type: ignore[arg-type]


class Hed(nn.Module):
    """Images [n, C, H, W] to the logits of edges [n, 6, H, W]: the five side outputs, from the finest on, and their
    fusion.

    `features` is VGG16 without its last pooling and its fully connected layers (section 3.1, "Trimmed network for edge
    detection"); the side outputs hang on the last layer of each stage. They are brought to the size of the image by
    bilinear interpolation (section 4.1, "In-network bilinear interpolation").
    """

    def __init__(self, *, batch_norm: bool = False) -> None:
        super().__init__()
        self.features = vgg16_stages(batch_norm=batch_norm)
        self.head = HedHead(WIDTHS)
        self._ends = tuple(stage[-1] for stage in activations(self.features))

    def forward(self, inputs: Tensor) -> Tensor:
        maps: list[Tensor] = []
        for index, layer in enumerate(self.features):
            inputs = layer(inputs)
            if index in self._ends:
                side = self.head.side[len(maps)](inputs)
                maps.append(enlarged(side, maps[0]) if maps else side)
        sides = torch.cat(maps, 1)
        return torch.cat([sides, self.head.fuse(sides)], 1)


class HedOnEncoder(nn.Module):
    """HED on an encoder of segmentation_models_pytorch in place of VGG16.

    Images [n, C, s, s], s a multiple of 16, to the logits of edges [n, maps, s, s]: a side output for each level of the
    encoder from stride 2 on, and their fusion. An encoder that begins with stride 4 has one level less.

    The encoder gets the image at twice its size, so that its levels have VGG16's strides of 1 to 16. From maps at half
    the size of the image, edges are found too far from their place: on BSDS500 at 128 px, EfficientNet-Lite0 reaches
    an ODS of 0.599 so, and of 0.696 at twice the size.
    """

    def __init__(self, encoder: str, channels: int) -> None:
        from segmentation_models_pytorch.encoders import get_encoder

        super().__init__()
        self.encoder = get_encoder(encoder, in_channels=channels, depth=5, weights=None)
        widths = self.encoder.out_channels
        self._levels = [level for level, width in enumerate(widths) if level and width]
        self.head = HedHead([widths[level] for level in self._levels])

    def forward(self, inputs: Tensor) -> Tensor:
        features = self.encoder(functional.interpolate(inputs, scale_factor=2.0, mode="bilinear"))
        maps = [
            functional.interpolate(side(features[level]), scale_factor=2.0 ** (level - 1), mode="bilinear")
            for level, side in zip(self._levels, self.head.side, strict=True)
        ]
        sides = torch.cat(maps, 1)
        return torch.cat([sides, self.head.fuse(sides)], 1)


def enlarged(values: Tensor, like: Tensor) -> Tensor:
    """`values` at the height and width of `like`."""
    return functional.interpolate(values, size=like.shape[-2:], mode="bilinear", align_corners=False)
