"""Networks from Batra et al. 2019, Improved Road Connectivity by Joint Learning of Orientation and Segmentation (CVPR).

Both have one encoder and two branches: one for the classes of a mask, and one for the classes of direction (section
3.1). The hourglass uses the layer names of the authors' code (github.com/anilbatra2185/road_connectivity), so that the
authors' weights can be loaded. Image sides must be multiples of 32 px, so that halving and doubling restores them.

Each network returns one tensor [n, classes + directions, pixels]: the scores of both branches for the pixels of the
largest map, row by row, followed by those of smaller maps. `unpack_maps` separates them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

STRIDE = 32


def unpack_maps(outputs: Tensor, size: int) -> list[Tensor]:
    """Split the output of a network into its maps [n, scores, s, s], largest first, for images of `size` pixels.

    `outputs` [n, scores, pixels] hold a map of the full size, possibly followed by a map of half the size and any
    number of maps of a quarter of the size. A single map [n, scores, size, size] is also accepted.
    """
    pixels = outputs.flatten(2)
    maps: list[Tensor] = []
    while pixels.shape[2]:
        side = size >> min(len(maps), 2)
        map_pixels, pixels = pixels.split([side * side, pixels.shape[2] - side * side], 2)
        maps.append(map_pixels.unflatten(2, (side, side)))
    return maps


class DecoderBlock(nn.Module):
    """Block that doubles the height and width with 1 x 1, transposed 3 x 3 and 1 x 1 convolutions.

    Source: LinkNet (Chaurasia and Culurciello 2017, figure 3).
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, inputs // 4, 1)
        self.norm1 = nn.BatchNorm2d(inputs // 4)
        self.deconv2 = nn.ConvTranspose2d(inputs // 4, inputs // 4, 3, stride=2, padding=1, output_padding=1)
        self.norm2 = nn.BatchNorm2d(inputs // 4)
        self.conv3 = nn.Conv2d(inputs // 4, outputs, 1)
        self.norm3 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.norm1(self.conv1(x)))
        x = functional.relu(self.norm2(self.deconv2(x)))
        return functional.relu(self.norm3(self.conv3(x)))


class LinkNetDecoder(nn.Module):
    """Decoder of one branch, which converts encoder features with strides 4 to 32 to full-size scores.

    `widths` are the numbers of channels in the encoder features.
    """

    def __init__(self, widths: Sequence[int], scores: int) -> None:
        super().__init__()
        pairs = itertools.pairwise((*reversed(widths), widths[0]))
        self.blocks = nn.ModuleList(DecoderBlock(inputs, outputs) for inputs, outputs in pairs)
        self.finaldeconv1 = nn.ConvTranspose2d(widths[0], 32, 3, stride=2)
        self.finalconv2 = nn.Conv2d(32, 32, 3)
        self.finalconv3 = nn.Conv2d(32, scores, 2, padding=1)
        initialize_weights(self)

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """Return scores [n, scores, H, W] for encoder features, finest first.

        Each block doubles the size of the coarser features, and the next finer features are added to the result.
        """
        *skips, x = features
        for block, skip in zip(self.blocks, reversed(skips), strict=False):
            x = block(x) + skip
        x = self.blocks[-1](x)
        x = functional.leaky_relu(self.finaldeconv1(x), 0.2)
        x = functional.leaky_relu(self.finalconv2(x), 0.2)
        scores: Tensor = self.finalconv3(x)
        return scores


class LinkNetMTL(nn.Module):
    """LinkNet with one decoder per branch, on an encoder from segmentation_models_pytorch (Batra et al. 2019).

    The paper uses a ResNet as encoder. The output is a single map of the full size.
    """

    def __init__(self, encoder: str, classes: int, directions: int, channels: int) -> None:
        from segmentation_models_pytorch.encoders import get_encoder

        super().__init__()
        self.encoder = get_encoder(encoder, in_channels=channels, depth=5, weights=None)
        widths = self.encoder.out_channels[2:]  # from stride 4 on
        self.roads = LinkNetDecoder(widths, classes)
        self.directions = LinkNetDecoder(widths, directions)

    def forward(self, x: Tensor) -> Tensor:
        features = self.encoder(x)[2:]
        return torch.cat([self.roads(features), self.directions(features)], 1).flatten(2)


class ResidualBlock(nn.Module):
    """Residual block: two 3 x 3 convolutions and a skip connection."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1)) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        skip = self.downsample(x)
        x = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(x)) + skip)


def _build_residual_blocks(features: int, blocks: int) -> nn.Sequential:
    """Build a sequence of residual blocks with `features` channels."""
    return nn.Sequential(*(ResidualBlock(features, features) for _ in range(blocks)))


class HourglassModuleMTL(nn.Module):
    """Multi-branch hourglass of Batra et al. 2019, with a shared encoder and one decoder per branch.

    Skip connections lead from the encoder to the decoders, after Newell et al. 2016.
    """

    def __init__(self, features: int, blocks: int, depth: int) -> None:
        super().__init__()
        # Each level has 4 groups of blocks: a skip, a path down, and a path up for each of the two branches. The lowest
        # one has 6, with a bottom for each branch.
        levels = (
            nn.ModuleList(_build_residual_blocks(features, blocks) for _ in range(6 if height == 0 else 4))
            for height in range(depth)
        )
        self.hg = nn.ModuleList(levels)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._run_level(len(self.hg), x)

    def _run_level(self, height: int, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features of both branches at `height` levels above the bottom, with the size of `x`."""
        level = self.hg[height - 1]
        assert isinstance(level, nn.ModuleList)
        skip, down, up_1, up_2, *bottoms = level
        skipped = skip(x)
        smaller = down(functional.max_pool2d(x, 2))
        if bottoms:  # the lowest level
            smaller_1, smaller_2 = (bottom(smaller) for bottom in bottoms)
        else:
            smaller_1, smaller_2 = self._run_level(height - 1, smaller)
        larger_1 = functional.interpolate(up_1(smaller_1), scale_factor=2.0)
        larger_2 = functional.interpolate(up_2(smaller_2), scale_factor=2.0)
        return skipped + larger_1, skipped + larger_2


class StackHourglassNetMTL(nn.Module):
    """Sequence of hourglasses at a quarter of the image size, with a decoder to half and full size (Batra et al. 2019).

    Each hourglass outputs scores, which the next one receives. The loss applies to all maps (the paper's multi-scale
    loss).
    """

    def __init__(self, classes: int, directions: int, channels: int, stacks: int = 2, depth: int = 3) -> None:
        super().__init__()
        stem, features, blocks = 64, 128, 3
        self.conv1 = nn.Conv2d(channels, stem, 7, stride=2, padding=3)
        self.bn1 = nn.BatchNorm2d(stem)
        self.layer1 = _build_residual_blocks(stem, 1)
        self.layer2 = _build_residual_blocks(stem, 1)
        self.layer3 = nn.Sequential(ResidualBlock(stem, features))
        self.hg = nn.ModuleList(HourglassModuleMTL(features, blocks, depth) for _ in range(stacks))
        # Branch 1 is for the classes, branch 2 for the directions. The names are those of the authors' code.
        for branch, scores in (("1", classes), ("2", directions)):
            modules_of_stacks: dict[str, list[nn.Module]] = {
                "res_": [_build_residual_blocks(features, blocks) for _ in range(stacks)],
                "fc_": [_build_fully_connected(features) for _ in range(stacks)],
                "score_": [nn.Conv2d(features, scores, 1) for _ in range(stacks)],
                "_fc_": [nn.Conv2d(features, features, 1) for _ in range(stacks - 1)],
                "_score_": [nn.Conv2d(scores, features, 1) for _ in range(stacks - 1)],
            }
            for name, modules in modules_of_stacks.items():
                self.add_module(name + branch, nn.ModuleList(modules))
        for branch, scores in (("", classes), ("angle_", directions)):
            last = {
                "decoder1": DecoderBlock(features, features),
                "decoder1_score": nn.Conv2d(features, scores, 1),
                "finaldeconv1": nn.ConvTranspose2d(features, 32, 3, stride=2),
                "finalconv2": nn.Conv2d(32, 32, 3),
                "finalconv3": nn.Conv2d(32, scores, 2, padding=1),
            }
            for name, layer in last.items():
                self.add_module(branch + name, layer)
        initialize_weights(self)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of both branches for each map, joined into one tensor that `unpack_maps` can split.

        The maps have the full size, half of it, and, from each hourglass, a quarter of it.
        """
        x = functional.relu(self.bn1(self.conv1(x)))
        x = functional.max_pool2d(self.layer1(x), 2)
        x = self.layer3(self.layer2(x))
        quarter_scores = []
        for stack, hourglass in enumerate(self.hg):
            branches = hourglass(x)
            stack_scores, correction, branches = self._score_branches(stack, branches)
            quarter_scores.append(stack_scores)
            x = x + correction if correction is not None else x
        half_1, full_1 = self._decode_branch("", branches[0])
        half_2, full_2 = self._decode_branch("angle_", branches[1])
        maps = [torch.cat([full_1, full_2], 1), torch.cat([half_1, half_2], 1), *quarter_scores]
        return torch.cat([each.flatten(2) for each in maps], 2)

    def _score_branches(
        self, stack: int, branches: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor | None, tuple[Tensor, Tensor]]:
        """Compute the scores of both branches after the hourglass with the index `stack`.

        `branches` are the outputs of the hourglass. Returns the scores, the values to add to the input of the next
        hourglass (None after the last one), and the features of both branches.
        """
        all_scores, features = [], []
        next_input: Tensor | None = None
        for branch, x in zip(("1", "2"), branches, strict=True):
            branch_features = getattr(self, f"fc_{branch}")[stack](getattr(self, f"res_{branch}")[stack](x))
            scores = getattr(self, f"score_{branch}")[stack](branch_features)
            all_scores.append(scores)
            features.append(branch_features)
            if stack < len(self.hg) - 1:
                from_features = getattr(self, f"_fc_{branch}")[stack](branch_features)
                added = from_features + getattr(self, f"_score_{branch}")[stack](scores)
                next_input = added if next_input is None else next_input + added
        return torch.cat(all_scores, 1), next_input, (features[0], features[1])

    def _decode_branch(self, branch: str, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of one branch at half and at full size. `branch` is the prefix of its layers' names."""
        half = getattr(self, f"{branch}decoder1")(x)
        full = functional.relu(getattr(self, f"{branch}finaldeconv1")(half))
        refined = functional.relu(getattr(self, f"{branch}finalconv2")(full))
        return getattr(self, f"{branch}decoder1_score")(half), getattr(self, f"{branch}finalconv3")(refined)


def _build_fully_connected(features: int) -> nn.Sequential:
    """Build a fully connected layer for each pixel, with batch normalization and ReLU."""
    return nn.Sequential(nn.Conv2d(features, features, 1), nn.BatchNorm2d(features), nn.ReLU())


def initialize_weights(model: nn.Module) -> None:
    """Initialize weights as in the code of Batra et al. 2019 (He et al. 2015, equation 10, with the number of outputs).

    Layers that output scores start near zero instead, since scores of a few units would leave hardly any gradient for a
    soft IoU.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            fan = module.kernel_size[0] * module.kernel_size[1] * module.out_channels
            # Layers with "_score_" in their names receive scores instead.
            outputs_scores = "finalconv3" in name or ("score" in name and "_score_" not in name)
            nn.init.normal_(module.weight, 0.0, 0.01 if outputs_scores else math.sqrt(2.0 / fan))
