"""Point clouds without labels, for prediction."""

from __future__ import annotations

import os

from engine.contract.preprocessing import Preprocessing
from engine.data.datasets.point_blocks import PointBlocks
from engine.data.splits import MaskCode, PointSplit


class UnlabelledClouds(PointBlocks):
    """The blocks of one point cloud, normalised as the training's were."""

    labelled = False

    def __init__(self, file: str, preprocessing: Preprocessing, points: int) -> None:
        split = PointSplit([file], preprocessing.features)
        super().__init__(split, MaskCode((0,)), os.path.dirname(file) or ".", points=points)
        self.statistics = (preprocessing.mean, preprocessing.std)
