"""VGG16's five stages of convolutions (Simonyan & Zisserman 2015, table 1, column D), on which edge detectors stand."""

from __future__ import annotations

from torch import nn

WIDTHS = (64, 128, 256, 512, 512)
"""The channels of each stage."""
DEPTHS = (2, 2, 3, 3, 3)
"""The convolutions of each stage."""


def vgg16_stages(*, batch_norm: bool = False, dilated: bool = False) -> nn.Sequential:
    """The layers from the first convolution to the last stage's last activation, in the places where torchvision's
    vgg16 and vgg16_bn have them in `features`, so that their weights load; fresh ones are drawn as torchvision draws
    them.

    Without `dilated` each stage halves the image. With it the last does not: what it would see from afar it then sees
    by dilated convolutions. (The pooling before it takes 3 px and not 2, so that nothing moves by half a pixel.)
    """
    layers: list[nn.Module] = []
    channels = 3
    for stage, (width, depth) in enumerate(zip(WIDTHS, DEPTHS, strict=True)):
        wide = dilated and stage == len(WIDTHS) - 1
        if stage:
            layers.append(nn.MaxPool2d(3, stride=1, padding=1) if wide else nn.MaxPool2d(2))
        for _ in range(depth):
            spread = 2 if wide else 1
            convolution = nn.Conv2d(channels, width, 3, padding=spread, dilation=spread)
            nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
            layers += [convolution, *([nn.BatchNorm2d(width)] if batch_norm else []), nn.ReLU(inplace=True)]
            channels = width
    return nn.Sequential(*layers)


def activations(stages: nn.Sequential) -> tuple[tuple[int, ...], ...]:
    """The indices of each stage's activations among the layers, in order."""
    found: list[list[int]] = [[]]
    for index, layer in enumerate(stages):
        if isinstance(layer, nn.MaxPool2d):
            found.append([])
        elif isinstance(layer, nn.ReLU):
            found[-1].append(index)
    return tuple(map(tuple, found))
