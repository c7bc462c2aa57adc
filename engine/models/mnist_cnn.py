"""Network with two convolutions from PyTorch's MNIST example."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

MIN_SIZE = 12
"""Minimum side length in pixels of images for `MnistCnn`."""


class MnistCnn(nn.Module):
    """Network from github.com/pytorch/examples (mnist/main.py), for images [n, channels, s, s] with s of at least 12.

    It differs from the example in two ways. It has no dropout: its random numbers are generated per process, so
    training would depend on how a batch is divided among devices. Its pooling adapts to the image, so that every size
    results in the 12 x 12 map that the example has for 28 px.
    """

    def __init__(self, num_classes: int = 10, channels: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.pool = nn.AdaptiveMaxPool2d(12)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.conv1(x))
        x = functional.relu(self.conv2(x))
        x = torch.flatten(self.pool(x), 1)
        x = functional.relu(self.fc1(x))
        logits: Tensor = self.fc2(x)
        return logits
