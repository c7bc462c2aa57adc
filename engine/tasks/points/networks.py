"""PointCNN for the segmentation of point clouds, in plain PyTorch.

Source: Li, Bu, Sun, Wu, Di, Chen: PointCNN: Convolution On X-Transformed Points, NeurIPS 2018. Sections and algorithms
mentioned below are in that paper. Numbers that it does not state come from the authors' settings for Semantic3D.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.torch_compat import scan


class Level(NamedTuple):
    """X-Conv level in the encoder of PointCNN.

    Attributes:
        fraction: Fraction of all points that are representative points of this level.
        neighbors: Number of neighbors that each representative point uses.
        dilation: Each representative point uses every `dilation`-th of its nearest points.
        channels: Number of output channels at width 1.
    """

    fraction: float
    neighbors: int
    dilation: int
    channels: int


ENCODER_LEVELS = (Level(1.0, 8, 1, 32), Level(768 / 2048, 12, 5, 64), Level(256 / 2048, 16, 5, 96))
"""Levels of PointCNN's encoder.

The authors multiply the numbers of channels by a width of 4 for Semantic3D, and 8 for S3DIS and ScanNet.
"""
DECODER_LEVELS = ((12, 2, 1), (8, 1, 0), (8, 1, 0))
"""Levels of PointCNN's decoder (X-DeConv, Li et al. 2018, section 3.3).

Each has the number of neighbors, the dilation, and the index of the encoder level with the same points.
"""
DROPOUT = 0.5
"""Dropout probability before PointCNN's last fully connected layer (Li et al. 2018, section 3.3)."""


class PointCNN(nn.Module):
    """PointCNN, which maps points [n, 3 + f, points] to class scores [n, classes, points].

    The first three channels of a point are its coordinates, the others its features. In training, the points should be
    in a new random order each time, so that the neighbors of a representative point are random, too (section 3.3, Data
    Augmentation).
    """

    def __init__(self, channels: int, classes: int, width: int) -> None:
        super().__init__()
        level_channels = [level.channels * width for level in ENCODER_LEVELS]
        feature_width = level_channels[0] // 2 if channels > 3 else 0
        self.lift = _DenseLayer(channels - 3, feature_width) if feature_width else None
        # Encoder levels, decoder levels, and layers that merge the decoder's features with those of the encoder.
        self.down = nn.ModuleList()
        for level_index, (level, out_channels) in enumerate(zip(ENCODER_LEVELS, level_channels, strict=True)):
            # Channels of lifted coordinates and depth multiplier, as in the authors' code.
            if level_index == 0:
                in_channels, depth_multiplier = feature_width, 4
                lifted_channels = out_channels // 4 if feature_width else out_channels // 2
            else:
                in_channels = level_channels[level_index - 1]
                depth_multiplier, lifted_channels = -(-out_channels // in_channels), in_channels // 4
            is_last = level_index == len(ENCODER_LEVELS) - 1
            self.down.append(
                XConv(
                    in_channels,
                    out_channels,
                    level.neighbors,
                    level.dilation,
                    lifted_channels,
                    depth_multiplier,
                    with_position=is_last,
                )
            )
        self.up = nn.ModuleList()
        self.join = nn.ModuleList()
        # Numbers of output channels, including those that the last level computes from the position.
        skip_widths = [*level_channels[:-1], level_channels[-1] + level_channels[-1] // 4]
        in_channels = skip_widths[-1]
        for neighbors, dilation, level_index in DECODER_LEVELS:
            out_channels = level_channels[level_index]
            self.up.append(XConv(in_channels, out_channels, neighbors, dilation, in_channels // 4, 1))
            self.join.append(_DenseLayer(out_channels + skip_widths[level_index], out_channels))
            in_channels = out_channels
        self.fully_connected = nn.Sequential(
            _DenseLayer(in_channels, in_channels), _DenseLayer(in_channels, in_channels)
        )
        self.head = nn.Linear(in_channels, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the class scores of each point, [n, classes, points]."""
        points = inputs[:, :3].transpose(1, 2).contiguous()
        features = inputs[:, 3:].transpose(1, 2) if self.lift is not None else None
        features = self.lift(features) if self.lift is not None else None
        positions, skips = [], []
        for level, layer in zip(ENCODER_LEVELS, self.down, strict=True):
            representative = points
            if level.fraction < 1:
                count = max(1, round(level.fraction * inputs.shape[2]))
                representative = take(points, select_farthest_points(points, count))
            features = layer(points, features, representative)
            points = representative
            positions.append(points)
            skips.append(features)
        for (_, _, level_index), layer, join in zip(DECODER_LEVELS, self.up, self.join, strict=True):
            features = layer(points, features, positions[level_index])
            # Concatenated with the features at these points on the way down, as in U-Net (section 3.3).
            features = join(torch.cat([features, skips[level_index]], 2))
            points = positions[level_index]
        features = functional.dropout(self.fully_connected(features), DROPOUT, self.training)
        outputs: Tensor = self.head(features).transpose(1, 2)
        return outputs


class XConv(nn.Module):
    """X-Conv, the convolution of PointCNN (Li et al. 2018, section 3.2, algorithm 1).

    It accepts features [n, m, in_channels] at points [n, m, 3] and returns features [n, p, out_channels] at the
    representative points [n, p, 3]. The first layer has no features, so its `in_channels` is 0.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        neighbors: Number of neighbors of each representative point.
        dilation: Each neighbor is every `dilation`-th of the nearest points.
        lifted_channels: Number of channels to which the coordinates of neighbors are lifted.
        depth_multiplier: Depth multiplier of the depthwise convolution.
        with_position: True to prepend out_channels / 4 channels computed from the position of the representative point,
            as in the last layer of the authors' code.
    """

    def __init__(  # noqa: PLR0917 - in the order of the algorithm
        self,
        in_channels: int,
        out_channels: int,
        neighbors: int,
        dilation: int,
        lifted_channels: int,
        depth_multiplier: int,
        *,
        with_position: bool = False,
    ) -> None:
        super().__init__()
        self.neighbors, self.dilation = neighbors, dilation
        # Batch normalization is applied to P', to F_p and to fully connected layers, but not within the two MLPs, which
        # have to be specific to each representative point (section 3.3).
        self.norm = nn.BatchNorm1d(3)
        self.lift = nn.Sequential(
            nn.Linear(3, lifted_channels), nn.ELU(), nn.Linear(lifted_channels, lifted_channels), nn.ELU()
        )
        self.transform = XTransform(neighbors)
        channels = lifted_channels + in_channels
        self.depthwise = nn.Parameter(torch.empty(neighbors, channels, depth_multiplier))
        nn.init.uniform_(self.depthwise, -(neighbors**-0.5), neighbors**-0.5)
        self.pointwise = nn.Linear(channels * depth_multiplier, out_channels)
        self.out_norm = nn.BatchNorm1d(out_channels)
        self.position_layers = (
            nn.Sequential(_DenseLayer(3, out_channels // 4), _DenseLayer(out_channels // 4, out_channels // 4))
            if with_position
            else None
        )

    def forward(self, points: Tensor, features: Tensor | None, representative: Tensor) -> Tensor:
        """Return the features [n, p, out] of the `representative` points. `features` is None in the first layer."""
        nearest = find_neighbors(representative, points, self.neighbors, self.dilation)
        local = take(points, nearest) - representative[:, :, None]  # line 1: P' = P - p
        local = _apply_norm(self.norm, local)
        gathered = self.lift(local)  # line 2: F_delta = MLP_delta(P')
        if features is not None:
            gathered = torch.cat([gathered, take(features, nearest)], 3)  # line 3: F_* = [F_delta, F]
        transformed = self.transform(local) @ gathered  # lines 4 and 5: X = MLP(P'), F_X = X x F_*
        # Line 6: F_p = Conv(K, F_X), a separable convolution (section 3.2).
        convolved = torch.einsum("npkc,kcd->npcd", transformed, self.depthwise.to(transformed.dtype)).flatten(2)
        outputs = _apply_norm(self.out_norm, functional.elu(self.pointwise(convolved)))
        if self.position_layers is not None:
            outputs = torch.cat([self.position_layers(representative), outputs], 2)
        return outputs


class XTransform(nn.Module):
    """X-transformation of PointCNN, which maps P' [n, p, K, 3] to X [n, p, K, K] (Li et al. 2018, algorithm 1, line 4).

    As in the authors' code, it consists of a fully connected layer over all K neighbors and two layers that treat the K
    values of each column separately.
    """

    def __init__(self, neighbors: int) -> None:
        super().__init__()
        self.neighbors = neighbors
        self.first = nn.Linear(3 * neighbors, neighbors**2)
        self.second, self.third = _ColumnwiseLinear(neighbors), _ColumnwiseLinear(neighbors)

    def forward(self, local: Tensor) -> Tensor:
        values = functional.elu(self.first(local.flatten(2))).unflatten(2, (self.neighbors, self.neighbors))
        mixed: Tensor = self.third(functional.elu(self.second(values)))
        return mixed


class _ColumnwiseLinear(nn.Module):
    """Separate fully connected layer for each column of [n, p, K, K]."""

    def __init__(self, neighbors: int) -> None:
        super().__init__()
        bound = neighbors**-0.5
        self.weight = nn.Parameter(torch.empty(neighbors, neighbors, neighbors).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(neighbors, neighbors))

    def forward(self, values: Tensor) -> Tensor:
        return torch.einsum("npkc,ckj->npcj", values, self.weight.to(values.dtype)) + self.bias.to(values.dtype)


class _DenseLayer(nn.Module):
    """Fully connected layer over the last dimension, then ELU and batch normalization (PointCNN, section 3.3)."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_channels, out_channels)
        self.norm = nn.BatchNorm1d(out_channels)

    def forward(self, features: Tensor) -> Tensor:
        return _apply_norm(self.norm, functional.elu(self.linear(features)))


def _apply_norm(norm: nn.Module, features: Tensor) -> Tensor:
    """Apply batch normalization to the last dimension of `features`."""
    normed: Tensor = norm(features.reshape(-1, features.shape[-1]))
    return normed.reshape(features.shape)


@torch.no_grad()
def select_farthest_points(points: Tensor, count: int) -> Tensor:
    """Return the indices of representative points among [n, m, 3], int64 [n, count], by farthest point sampling.

    The first point is always chosen. Then the point farthest from all chosen points is added repeatedly (PointCNN,
    section 3.2, for segmentation).
    """
    rows = torch.arange(points.shape[0], device=points.device)
    points = points.float()
    if torch.compiler.is_exporting():
        return _select_farthest_by_scan(points, count)
    chosen = torch.zeros((points.shape[0], count), dtype=torch.int64, device=points.device)
    chosen_distances = torch.full(points.shape[:2], torch.inf, device=points.device)
    for index in range(1, count):
        newest = points[rows, chosen[:, index - 1]]
        chosen_distances = torch.minimum(chosen_distances, (points - newest[:, None]).square().sum(2))
        chosen[:, index] = chosen_distances.argmax(1)
    return chosen


def _select_farthest_by_scan(points: Tensor, count: int) -> Tensor:
    """Return the same indices as `select_farthest_points` with a loop that is a single operation in an exported graph."""

    def step(state: tuple[Tensor, Tensor], _: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Add the last chosen point to the chosen points, and choose the point that is farthest from all of them."""
        chosen_distances, last = state
        newest = points.gather(1, last[:, None, None].expand(-1, 1, 3))
        chosen_distances = torch.minimum(chosen_distances, (points - newest).square().sum(2))
        farthest = chosen_distances.argmax(1)
        return (chosen_distances, farthest), farthest.clone()

    chosen_distances = torch.full_like(points[..., 0], torch.inf)
    first = torch.zeros_like(points[:, 0, 0], dtype=torch.int64)
    _, others = scan(step, (chosen_distances, first), torch.zeros(count - 1, device=points.device))
    return torch.cat([first[:, None], others.transpose(0, 1)], 1)


@torch.no_grad()
def find_neighbors(representative: Tensor, points: Tensor, count: int, dilation: int) -> Tensor:
    """Return the indices of the neighbors of each representative point, int64 [n, p, count].

    `representative` are [n, p, 3], and the neighbors are chosen among `points` [n, m, 3]. They are every `dilation`-th
    of the count * dilation nearest points (section 3.3, Dilated Convolution). If there are fewer points, the dilation
    is smaller. If there are fewer than `count` points, neighbors repeat.
    """
    available = points.shape[1]
    dilation = max(1, min(dilation, available // count))
    distances = _compute_distances(representative.float(), points.float())
    indices = distances.topk(min(count * dilation, available), largest=False).indices[:, :, ::dilation]
    if indices.shape[2] < count:
        indices = indices[:, :, torch.arange(count, device=indices.device) % indices.shape[2]]
    return indices


def _compute_distances(first: Tensor, second: Tensor) -> Tensor:
    """Return the distances between points [n, p, 3] and [n, m, 3], as [n, p, m], or their squares during an export.

    Only their order matters. Computing them from products would be faster, but would lose the small differences between
    close points.
    """
    if torch.compiler.is_exporting():  # ONNX export would use products; this needs three times the memory
        return (first[:, :, None] - second[:, None]).square().sum(3)
    return torch.cdist(first, second, compute_mode="donot_use_mm_for_euclid_dist")


def take(values: Tensor, indices: Tensor) -> Tensor:
    """Return the items of `values` [n, m, c] at the indices `indices` [n, ...], as [n, ..., c]."""
    rows = torch.arange(values.shape[0], device=values.device).reshape(-1, *(1 for _ in indices.shape[1:]))
    return values[rows, indices]
