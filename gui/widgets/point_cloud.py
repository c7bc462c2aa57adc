"""Point clouds that PNG images contain as metadata, drawn from any direction."""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import QImage, QKeyEvent

from engine.contract.images import CLOUD_GRAY, CLOUD_TEXT, CLOUD_TILT_DEG
from gui.translation import tr

if TYPE_CHECKING:  # NumPy is imported when the first cloud is read, because the window needs none to open
    import numpy as np
    import numpy.typing as npt

_MAX_TILT_DEG = 90.0
_DEGREES_PER_PIXEL = 0.5
_KEY_STEP_DEG = 10.0
_POINT_FIELDS = [("position", "<i2", 3), ("color", "u1", 3)]
"""Fields of the NumPy data type of a stored point."""


@dataclass(frozen=True)
class Direction:
    """Direction of view: angle around the vertical axis of the cloud, and tilt of this axis towards the viewer."""

    turn_deg: float = 0.0
    tilt_deg: float = CLOUD_TILT_DEG

    def after_drag(self, right_px: float, down_px: float) -> Direction:
        """Return the direction after the pointer has dragged the cloud by this distance in pixels."""
        return self.after_turn(_DEGREES_PER_PIXEL * right_px, _DEGREES_PER_PIXEL * down_px)

    def after_turn(self, right_deg: float, down_deg: float) -> Direction:
        """Return the direction after a turn to the right and down."""
        turn_deg = (self.turn_deg + right_deg + 180) % 360 - 180
        return Direction(turn_deg, min(_MAX_TILT_DEG, max(-_MAX_TILT_DEG, self.tilt_deg + down_deg)))

    def after_key(self, event: QKeyEvent) -> Direction | None:
        """Return the direction after an arrow key, or None for other keys."""
        step = _KEY_STEP_DEG
        steps = {
            Qt.Key.Key_Left: (-step, 0.0),
            Qt.Key.Key_Right: (step, 0.0),
            Qt.Key.Key_Up: (0.0, -step),
            Qt.Key.Key_Down: (0.0, step),
        }
        turn = steps.get(Qt.Key(event.key()))
        return None if turn is None else self.after_turn(*turn)

    def __str__(self) -> str:
        return tr("Turned by {turn}°, tilted by {tilt}°").format(turn=round(self.turn_deg), tilt=round(self.tilt_deg))


@dataclass(frozen=True)
class PointCloud:
    """Points of a cloud, drawn from any direction.

    Attributes:
        positions: Coordinates along the principal axes of the cloud, float32 [n, 3] in [-1, 1].
        colors: RGB colors, uint8 [n, 3]. Black points are drawn in a gray that depends on their depth.
    """

    positions: npt.NDArray[np.float32]
    colors: npt.NDArray[np.uint8]

    @classmethod
    def of_image(cls, image: QImage) -> PointCloud | None:
        """Return the point cloud in the metadata of a PNG image, or None if there is none or it is damaged."""
        import numpy as np

        try:
            content = zlib.decompress(base64.b64decode(image.text(CLOUD_TEXT)))
            points = np.frombuffer(content, np.dtype(_POINT_FIELDS))
        except (ValueError, binascii.Error, zlib.error):
            return None
        return cls((points["position"] / 32767).astype(np.float32), points["color"]) if len(points) else None

    def draw(self, direction: Direction, side: int) -> QImage:
        """Draw the points as squares in a square image of `side` pixels. Near points cover far ones."""
        import numpy as np

        turn, tilt = np.deg2rad(direction.turn_deg), np.deg2rad(direction.tilt_deg)
        first, second, third = self.positions.T
        # Turn around the vertical axis, then tilt this axis.
        right, back = np.cos(turn) * first - np.sin(turn) * second, np.sin(turn) * first + np.cos(turn) * second
        up, near = np.cos(tilt) * back + np.sin(tilt) * third, np.cos(tilt) * third - np.sin(tilt) * back
        # Points are squares of 2 * half + 1 pixels, which are larger if there are fewer points.
        half = max(0, min(4, round(side / np.sqrt(len(right)) / 4)))
        scale = (side - 1 - 2 * half) / 2
        order = np.argsort(near, kind="stable")  # the nearest are drawn last
        columns, rows = (np.rint(along[order] * scale + (side - 1) / 2).astype(int) for along in (right, -up))
        closeness = (near[order] - near.min()) / max(float(np.ptp(near)), 1e-12)
        background, far, close = CLOUD_GRAY
        grays = (far + (close - far) * closeness).astype(np.uint8)[:, None]
        colors = self.colors[order]
        colors = np.where(colors.any(1, keepdims=True), colors, grays)
        image = np.full((side, side, 3), background, np.uint8)
        for down in range(-half, half + 1):
            for across in range(-half, half + 1):
                image[np.clip(rows + down, 0, side - 1), np.clip(columns + across, 0, side - 1)] = colors
        return QImage(image.tobytes(), side, side, 3 * side, QImage.Format.Format_RGB888).copy()
