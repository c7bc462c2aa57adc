"""Pictures whose masks are of lines, with the direction of the lines beside the classes of the pixels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.data.orientation import DIRECTIONS, VERSION, orientation_plane
from engine.data.pictures import PictureSet


class OrientedPictures(PictureSet):
    """Masked pictures with a second plane behind the classes: that of `orientation_plane`, made of the mask in the size
    asked for, and kept with the picture. Targets are int64 [n, 2, size, size]."""

    planes = 2

    def __init__(self, pictures: PictureSet) -> None:
        self.targets = pictures.targets
        self.mirror = pictures.mirror
        self.folder, self.files, self.beside = pictures.folder, pictures.files, pictures.beside
        self.kind = f"{pictures.kind} orientation {VERSION}"
        self._pictures = pictures

    def path(self, index: int) -> str:
        return self._pictures.path(index)

    def load(self, index: int, size: int, channels: int) -> Tensor:
        pixels = self._pictures.load(index, size, channels)
        return torch.cat([pixels, torch.from_numpy(orientation_plane(pixels[-1].numpy()))[None]])

    def batch_targets(
        self, rows: Tensor, planes: Tensor | None, crops: Tensor | None, loaded: int, size: int
    ) -> Tensor:
        """As its base; in a mirrored picture a line rises where it fell."""
        assert planes is not None
        targets = planes.long()
        if crops is not None:
            along = targets[:, 1]
            turned = crops[:, 2].bool()[:, None, None] & (along < DIRECTIONS)
            targets[:, 1] = torch.where(turned, (DIRECTIONS - along) % DIRECTIONS, along)
        return targets

    def class_counts(self, classes: int) -> Sequence[float]:
        return self._pictures.class_counts(classes)
