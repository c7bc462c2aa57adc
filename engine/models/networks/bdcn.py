"""The bi-directional cascade network: He, Zhang, Yang, Shan and Huang, CVPR 2019."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from engine.models.networks.hed import enlarged
from engine.models.networks.vgg_stages import DEPTHS, WIDTHS, activations, vgg16_stages

SCALES = 3
RATE = 4
"""Dilated convolutions of a scale enhancement module, and the step of their dilations (section 4.2, "Implementation
details")."""
SEM_WIDTH, SUM_WIDTH = 32, 21
"""Channels within a scale enhancement module, and of what those of a stage are summed up to, as in the authors'
program."""


class ScaleEnhancement(nn.Module):
    """The scale enhancement module (section 3.2, "Architecture of BDCN"): a convolution, and on it others of growing
    dilation side by side, all summed; so it sees several scales without making the network deeper or the image
    smaller.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, SEM_WIDTH, 3, padding=1)
        self.dilated = nn.ModuleList(
            nn.Conv2d(SEM_WIDTH, SEM_WIDTH, 3, padding=RATE * k, dilation=RATE * k) for k in range(1, SCALES + 1)
        )
        self.down = nn.Conv2d(SEM_WIDTH, SUM_WIDTH, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        own = self.conv(inputs).relu()
        total = own
        for convolution in self.dilated:
            total = total + convolution(own).relu()
        reduced: Tensor = self.down(total)
        return reduced


class IncrementalDetection(nn.Module):
    """What a stage adds in an incremental detection block (section 3.2): a scale enhancement module on each of its
    layers, summed, and of the sum two edge maps [n, 1, h, w], one for either direction of the cascade.
    """

    def __init__(self, channels: int, depth: int) -> None:
        super().__init__()
        self.enhance = nn.ModuleList(ScaleEnhancement(channels) for _ in range(depth))
        self.to_deep = nn.Conv2d(SUM_WIDTH, 1, 1)
        self.to_shallow = nn.Conv2d(SUM_WIDTH, 1, 1)

    def forward(self, layers: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        total = self.enhance[0](layers[0])
        for module, layer in zip(self.enhance[1:], layers[1:], strict=True):
            total = total + module(layer)
        return self.to_deep(total), self.to_shallow(total)


class BdcnHead(nn.Module):
    """What stands on the backbone: a block for each stage, and the fusion of all their maps."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(map(IncrementalDetection, WIDTHS, DEPTHS))
        self.fuse = nn.Conv2d(2 * len(WIDTHS), 1, 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, std=0.01)
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]
        # As HED's, the fusion begins as a mean.
        nn.init.constant_(self.fuse.weight, 1 / (2 * len(WIDTHS)))


class Bdcn(nn.Module):
    """Images [n, C, H, W] to the logits of edges [n, 11, H, W]: five maps from shallow to deep, five from deep to
    shallow, and their fusion.

    Each stage is to learn the edges of its own scale alone (section 3.1, "Formulation": layer-specific supervision,
    the truth less what the other stages find): what all shallower stages, or all deeper ones, have found is added to
    its map before that is compared with the truth, and no gradient passes to them. The last stage is dilated instead
    of pooled, as in the authors' program.
    """

    def __init__(self, *, batch_norm: bool = False) -> None:
        super().__init__()
        self.features = vgg16_stages(batch_norm=batch_norm, dilated=True)
        self.head = BdcnHead()
        self._layers = activations(self.features)

    def forward(self, inputs: Tensor) -> Tensor:
        deep: list[Tensor] = []
        shallow: list[Tensor] = []
        stages = list(self.features)
        begin = 0
        for indices, block in zip(self._layers, self.head.blocks, strict=True):
            layers = []
            for index in range(begin, indices[-1] + 1):
                inputs = stages[index](inputs)
                if index in indices:
                    layers.append(inputs)
            begin = indices[-1] + 1
            to_deep, to_shallow = block(layers)
            deep.append(enlarged(to_deep, deep[0]) if deep else to_deep)
            shallow.append(enlarged(to_shallow, deep[0]) if shallow else to_shallow)
        maps = torch.cat([*_cascade(deep), *reversed(_cascade(shallow[::-1]))], 1)
        return torch.cat([maps, self.head.fuse(maps)], 1)


def _cascade(maps: Sequence[Tensor]) -> list[Tensor]:
    """Each map with all before it added, through which no gradient passes."""
    found = [maps[0]]
    before = maps[0].detach()
    for own in maps[1:]:
        found.append(own + before)
        before = before + own.detach()
    return found
