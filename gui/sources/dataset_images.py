"""Images of a dataset's folder, read on a thread: whole, or small and a few at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QObject, QSize, Qt, Signal
from PySide6.QtGui import QImage, QImageReader

from engine.system.regular_files import UnusableFile, open_regular
from gui.sources.background import Background, in_background

FORMATS = ("bmp", "gif", "jpeg", "jpg", "pbm", "pgm", "png", "ppm", "tif", "tiff", "webp")
"""What is decoded: images of pixels alone, whatever the file is called."""

_AT_ONCE = 6
_KEPT = 600
"""Small images that are kept: of 160 pixels they take 60 MiB."""


def read_image(file: Path, side: int = 0) -> QImage | str:
    """The image in `file`, turned upright, with a `side` no larger than that; or why there is none, in words."""
    try:
        with open_regular(file) as stream:
            content = QByteArray(stream.read())
    except FileNotFoundError:
        return f"{file.name} is missing."
    except OSError as error:
        return f"{file.name} can't be read: {error.strerror}."
    except UnusableFile as error:
        return f"{file.name} {error.words}."
    buffer = QBuffer(content)
    buffer.open(QIODevice.OpenModeFlag.ReadOnly)
    reader = QImageReader(buffer)
    reader.setAutoTransform(True)
    if bytes(reader.format().data()).decode(errors="replace") not in FORMATS:
        return f"{file.name} is not an image that can be shown here."
    size = reader.size()
    if side and size.isValid() and max(size.width(), size.height()) > side:
        reader.setScaledSize(size.scaled(QSize(side, side), Qt.AspectRatioMode.KeepAspectRatio))
    image = reader.read()
    return f"{file.name} can't be shown: {reader.errorString()}." if image.isNull() else image


class Thumbnails(QObject):
    """Small images of files, read on a thread a few at a time: what was asked for last comes first.

    Signals: loaded() - some more are there.
    """

    loaded = Signal()

    def __init__(self, side: int, parent: QObject | None = None) -> None:
        """`side` is that of the largest, in pixels of the device."""
        super().__init__(parent)
        self._side = side
        self._images: dict[Path, QImage] = {}
        self._wanted: dict[Path, None] = {}
        self._reading: Background | None = None

    def image(self, file: Path) -> QImage | None:
        """The image of `file`, a null one where it can't be shown; None until it has been read."""
        image = self._images.get(file)
        if image is None:
            self._wanted.pop(file, None)
            self._wanted[file] = None
            self._go_on()
        return image

    def forget(self) -> None:
        """What was asked for is not wanted any more, and files need not hold what they did."""
        self._wanted.clear()
        self._images.clear()

    def finish(self) -> None:
        """Waits for what is being read, for the end of the window."""
        self._wanted.clear()
        if self._reading is not None:
            self._reading.finish()

    def _go_on(self) -> None:
        if self._reading is None and self._wanted:
            files = list(self._wanted)[-1 : -_AT_ONCE - 1 : -1]
            for file in files:
                del self._wanted[file]
            self._reading = in_background(lambda: self._read(files), self, self._take, self._fail)

    def _read(self, files: Sequence[Path]) -> dict[Path, QImage]:
        read = {file: read_image(file, self._side) for file in files}
        return {file: QImage() if isinstance(image, str) else image for file, image in read.items()}

    def _take(self, images: dict[Path, QImage]) -> None:
        self._reading = None
        self._images |= images
        while len(self._images) > _KEPT:
            del self._images[next(iter(self._images))]
        self.loaded.emit()
        self._go_on()

    def _fail(self, error: Exception) -> None:
        self._reading = None
        raise error
