"""A model for image classification with options of its own."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

import msgspec
from torch import nn

from engine.contract.options import option
from engine.models.registry import Model


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the model: a form row each, and `--option width=16` in a terminal."""

    width: Annotated[int, option("Width", "Channels after the first layer; each stage doubles them.", ge=1, le=256)] = 8
    stages: Annotated[int, option("Stages", "How often the image is halved.", ge=1, le=5)] = 3


def build(classes: int, channels: int, options: Options) -> nn.Module:
    """Convolutions that halve the image, and a linear layer upon their mean: [n, channels, s, s] to [n, classes]."""
    widths = [channels, *(options.width * 2**stage for stage in range(options.stages))]
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))


NARROW_NET = Model("Narrow net", "classification", build, family="Example", image_size=32, options=Options)
