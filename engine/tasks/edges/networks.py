"""Networks for edge detection: HED (Xie and Tu, ICCV 2015) and BDCN (He, Zhang, Yang, Shan and Huang, CVPR 2019).

Both are based on the five convolutional stages of VGG16 (Simonyan and Zisserman 2015, table 1, column D).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTHS = (64, 128, 256, 512, 512)
"""Number of channels in each VGG16 stage."""
DEPTHS = (2, 2, 3, 3, 3)
"""Number of convolutions in each VGG16 stage."""
SEM_DILATIONS = 3
SEM_DILATION_STEP = 4
"""Number of dilated convolutions in BDCN's scale enhancement module, and the step between their dilations.

Source: He et al. 2019, section 4.2, "Implementation details".
"""
SEM_WIDTH, STAGE_WIDTH = 32, 21
"""Number of channels in BDCN's scale enhancement module, and in the sum over a stage, as in the authors' code."""


def build_vgg16_stages(*, batch_norm: bool = False, dilated: bool = False) -> nn.Sequential:
    """Build the layers of VGG16 from the first convolution to the last activation.

    The layers have the same positions as in `features` of torchvision's vgg16 and vgg16_bn, so that torchvision's
    weights can be loaded. New weights are initialized as in torchvision. Each stage after the first halves the image.
    If `dilated` is True, the last stage uses dilated convolutions instead of halving the image, and the pooling before
    it has a size of 3 px instead of 2 to avoid a shift by half a pixel.
    """
    layers: list[nn.Module] = []
    channels = 3
    for stage, (width, depth) in enumerate(zip(WIDTHS, DEPTHS, strict=True)):
        is_dilated = dilated and stage == len(WIDTHS) - 1
        if stage:
            layers.append(nn.MaxPool2d(3, stride=1, padding=1) if is_dilated else nn.MaxPool2d(2))
        for _ in range(depth):
            dilation = 2 if is_dilated else 1
            convolution = nn.Conv2d(channels, width, 3, padding=dilation, dilation=dilation)
            nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
            layers += [convolution, *([nn.BatchNorm2d(width)] if batch_norm else []), nn.ReLU(inplace=True)]
            channels = width
    return nn.Sequential(*layers)


def find_activation_indices(stages: nn.Sequential) -> tuple[tuple[int, ...], ...]:
    """Return the indices of the activation layers in each stage, in order."""
    stage_indices: list[list[int]] = [[]]
    for index, layer in enumerate(stages):
        if isinstance(layer, nn.MaxPool2d):
            stage_indices.append([])
        elif isinstance(layer, nn.ReLU):
            stage_indices[-1].append(index)
    return tuple(map(tuple, stage_indices))


def resize_like(values: Tensor, like: Tensor) -> Tensor:
    """Resize `values` to the height and width of `like`."""
    return functional.interpolate(values, size=like.shape[-2:], mode="bilinear", align_corners=False)


class HedHead(nn.Module):
    """Head of HED: a side output for each feature map, and their weighted fusion (Xie and Tu 2015, section 2.2).

    `widths` are the numbers of channels in the feature maps.
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
    """HED, which maps images [n, C, H, W] to edge logits [n, 6, H, W] (Xie and Tu 2015).

    The logits are five side outputs, finest first, and their fusion. `features` is VGG16 without its last pooling and
    its fully connected layers (section 3.1, "Trimmed network for edge detection"). Side outputs follow the last layer
    of each stage, and are enlarged by bilinear interpolation (section 4.1, "In-network bilinear interpolation").
    """

    def __init__(self, *, batch_norm: bool = False) -> None:
        super().__init__()
        self.features = build_vgg16_stages(batch_norm=batch_norm)
        self.head = HedHead(WIDTHS)
        self._stage_ends = tuple(stage[-1] for stage in find_activation_indices(self.features))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return each stage's edge map at the size of the first one, and their fusion, as logits [n, 6, H, W]."""
        maps: list[Tensor] = []
        for index, layer in enumerate(self.features):
            inputs = layer(inputs)
            if index in self._stage_ends:
                side = self.head.side[len(maps)](inputs)
                maps.append(resize_like(side, maps[0]) if maps else side)
        sides = torch.cat(maps, 1)
        return torch.cat([sides, self.head.fuse(sides)], 1)


class HedOnEncoder(nn.Module):
    """HED on an encoder from segmentation_models_pytorch instead of VGG16.

    It accepts images [n, C, s, s], where s is a multiple of 16, and returns edge logits [n, maps, s, s]. The maps are a
    side output for each level of the encoder from stride 2 on, and their fusion. An encoder whose first level has
    stride 4 has one side output less.

    The encoder receives the image at twice its size, so that its levels have the same strides as in VGG16, 1 to 16.
    Without enlarging the image, the finest map would have half its size and misplace edges. On BSDS500 at 128 px, the
    ODS of EfficientNet-Lite0 is 0.599 without enlarging and 0.696 with it.
    """

    def __init__(self, encoder: str, channels: int) -> None:
        from segmentation_models_pytorch.encoders import get_encoder

        super().__init__()
        self.encoder = get_encoder(encoder, in_channels=channels, depth=5, weights=None)
        widths = self.encoder.out_channels
        # Levels with features. Level 0 is the image, and some encoders have no features at some strides.
        self._levels = [level for level, width in enumerate(widths) if level and width]
        self.head = HedHead([widths[level] for level in self._levels])

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the edge maps of the encoder's levels at the images' size, and their fusion, as logits."""
        features = self.encoder(functional.interpolate(inputs, scale_factor=2.0, mode="bilinear"))
        maps = [
            functional.interpolate(side(features[level]), scale_factor=2.0 ** (level - 1), mode="bilinear")
            for level, side in zip(self._levels, self.head.side, strict=True)
        ]
        sides = torch.cat(maps, 1)
        return torch.cat([sides, self.head.fuse(sides)], 1)


class ScaleEnhancement(nn.Module):
    """Scale enhancement module of BDCN (He et al. 2019, section 3.2).

    A convolution reduces the input to `SEM_WIDTH` channels. Several parallel convolutions with growing dilation are
    applied to the result, and their outputs are added to it. A last convolution reduces the sum to `STAGE_WIDTH`
    channels. This covers several scales without a deeper network or a smaller image.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, SEM_WIDTH, 3, padding=1)
        self.dilated = nn.ModuleList(
            nn.Conv2d(SEM_WIDTH, SEM_WIDTH, 3, padding=SEM_DILATION_STEP * k, dilation=SEM_DILATION_STEP * k)
            for k in range(1, SEM_DILATIONS + 1)
        )
        self.down = nn.Conv2d(SEM_WIDTH, STAGE_WIDTH, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        features = self.conv(inputs).relu()
        total = features
        for convolution in self.dilated:
            total = total + convolution(features).relu()
        reduced: Tensor = self.down(total)
        return reduced


class IncrementalDetection(nn.Module):
    """Incremental detection block of BDCN for one stage, without the cascade (He et al. 2019, section 3.2).

    A scale enhancement module is applied to each layer of the stage. Their sum yields two edge maps [n, 1, h, w], one
    for each direction of the cascade.
    """

    def __init__(self, channels: int, depth: int) -> None:
        super().__init__()
        self.enhance = nn.ModuleList(ScaleEnhancement(channels) for _ in range(depth))
        self.to_deep = nn.Conv2d(STAGE_WIDTH, 1, 1)
        self.to_shallow = nn.Conv2d(STAGE_WIDTH, 1, 1)

    def forward(self, layers: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        total = self.enhance[0](layers[0])
        for module, layer in zip(self.enhance[1:], layers[1:], strict=True):
            total = total + module(layer)
        return self.to_deep(total), self.to_shallow(total)


class BdcnHead(nn.Module):
    """Head of BDCN: one block for each stage, and the fusion of the edge maps of all blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(map(IncrementalDetection, WIDTHS, DEPTHS))
        self.fuse = nn.Conv2d(2 * len(WIDTHS), 1, 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, std=0.01)
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]
        # The fusion begins as a mean, like that of HED.
        nn.init.constant_(self.fuse.weight, 1 / (2 * len(WIDTHS)))


class Bdcn(nn.Module):
    """BDCN, which maps images [n, C, H, W] to edge logits [n, 11, H, W] (He et al. 2019).

    These are five maps from shallow to deep, five from deep to shallow, and their fusion. Each stage learns only the
    edges of its scale (section 3.1, "Formulation": layer-specific supervision): before its map is compared with the
    annotation, the maps of all shallower, or all deeper, stages are added without gradient. The last stage is dilated
    instead of pooled, as in the authors' code.
    """

    def __init__(self, *, batch_norm: bool = False) -> None:
        super().__init__()
        self.features = build_vgg16_stages(batch_norm=batch_norm, dilated=True)
        self.head = BdcnHead()
        # Indices of the activations in each stage.
        self._activations = find_activation_indices(self.features)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the edge maps of all stages in both directions, followed by their fusion, as [n, maps, h, w]."""
        # Edge maps of the stages so far, for the two directions of the cascade.
        deep: list[Tensor] = []
        shallow: list[Tensor] = []
        stages = list(self.features)
        start = 0
        for indices, block in zip(self._activations, self.head.blocks, strict=True):
            layers = []
            for index in range(start, indices[-1] + 1):
                inputs = stages[index](inputs)
                if index in indices:
                    layers.append(inputs)
            start = indices[-1] + 1
            to_deep, to_shallow = block(layers)
            deep.append(resize_like(to_deep, deep[0]) if deep else to_deep)
            shallow.append(resize_like(to_shallow, deep[0]) if shallow else to_shallow)
        maps = torch.cat([*_cascade(deep), *reversed(_cascade(shallow[::-1]))], 1)
        return torch.cat([maps, self.head.fuse(maps)], 1)


def _cascade(maps: Sequence[Tensor]) -> list[Tensor]:
    """Add all preceding maps to each map. Gradients do not flow to the preceding maps."""
    cascaded = [maps[0]]
    preceding_sum = maps[0].detach()
    for each in maps[1:]:
        cascaded.append(each + preceding_sum)
        preceding_sum = preceding_sum + each.detach()
    return cascaded
