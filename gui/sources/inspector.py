"""Child processes that inspect dataset folders and plug-ins, and a cache of thumbnails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QObject, QSize, Qt, Signal
from PySide6.QtGui import QImage, QImageReader

from engine.contract.catalogue import load_catalogue, supplement_file
from engine.contract.dataset import INSPECTION, InspectionProgress, inspector_options
from engine.contract.job import Job
from engine.system.regular_files import UnusableFile, open_regular
from gui.sources.background import SingleFlight, reraise
from gui.sources.json_lines import Answer, JsonLinesProcess
from gui.translation import tr

_REPORT_LIMIT_BYTES = 64 << 20
"""Maximum length of a line. It is large, because a report contains example images."""


class Inspector(JsonLinesProcess):
    """Child process (``python -m engine.data``) that inspects a dataset folder.

    It inspects one folder at a time. Its progress is an InspectionProgress, and its result a DatasetReport.

    Attributes:
        folder: Last inspected folder, or "" before the first one.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(
            "engine.data",
            tr("Inspecting the folder"),
            INSPECTION.decode,
            parent,
            line_limit_bytes=_REPORT_LIMIT_BYTES,
        )
        self.folder = ""

    def start(self, job: Job) -> None:
        """Inspect the dataset folder of `job` for the job's task."""
        self.folder = job.data.dataset
        self.run([job.data.dataset, *inspector_options(job, load_catalogue())], first=InspectionProgress(0, 0))


class PluginReader(JsonLinesProcess):
    """Child process that adds the contents of plug-ins to the catalogue (``python -m engine.catalogue --plugins``).

    When `done` is emitted, the catalogue contains everything that the plug-ins provide.
    """

    def __init__(self) -> None:
        # Plug-ins may print anything while they are imported, so lines are not decoded.
        super().__init__("engine.catalogue", tr("Reading the installed plug-ins"), bytes)

    def start(self) -> None:
        """Import the plug-ins, unless their entries are already in the catalogue's cache."""
        file = supplement_file()
        if file is not None and not file.exists():
            self.run(["--plugins"])

    def on_exit(self, code: int) -> Answer | None:
        """Make this process reload the catalogue, which then contains the plug-ins' entries.

        Return an empty answer, or None if the child process has not written the file with the entries.
        """
        file = supplement_file()
        if file is None or not file.exists():
            return None
        load_catalogue.cache_clear()
        return Answer(None)


FORMATS = ("bmp", "gif", "jpeg", "jpg", "pbm", "pgm", "png", "ppm", "tif", "tiff", "webp")
"""Image formats that may be decoded, whatever the file name. Document formats are excluded."""

_BATCH = 6
"""Number of thumbnails that are read at a time."""
_CAPACITY = 600
"""Maximum number of thumbnails in memory. With 160 pixels, they take 60 MiB."""


def read_image(file: Path, side: int = 0) -> QImage | str:
    """Read an image and turn it upright. Unless `side` is 0, shrink its longer side to at most `side` pixels.

    Returns a message if that fails.
    """
    try:
        with open_regular(file) as stream:
            content = QByteArray(stream.read())
    except FileNotFoundError:
        return tr("{file} is missing.").format(file=file.name)
    except OSError as error:
        return tr("{name} can't be read: {strerror}.").format(name=file.name, strerror=error.strerror)
    except UnusableFile as error:
        return f"{file.name} {error.reason}."
    buffer = QBuffer(content)
    buffer.open(QIODevice.OpenModeFlag.ReadOnly)
    reader = QImageReader(buffer)
    reader.setAutoTransform(True)
    if bytes(reader.format().data()).decode(errors="replace") not in FORMATS:
        return tr("{name} is not an image that can be shown here.").format(name=file.name)
    size = reader.size()
    if side and size.isValid() and max(size.width(), size.height()) > side:
        reader.setScaledSize(size.scaled(QSize(side, side), Qt.AspectRatioMode.KeepAspectRatio))
    image = reader.read()
    if image.isNull():
        return tr("{name} can't be shown: {errorString}.").format(name=file.name, errorString=reader.errorString())
    return image


class Thumbnails(QObject):
    """Cache of thumbnails, which are read on a worker thread in batches, the latest requests first.

    Signals:
        loaded(): more thumbnails have been read.
    """

    loaded = Signal()

    def __init__(self, side: int, parent: QObject | None = None) -> None:
        """Create an empty cache for images of at most `side` device pixels on their longer side."""
        super().__init__(parent)
        self._side = side
        self._images: dict[Path, QImage] = {}
        self._requested: dict[Path, None] = {}
        self._flight = SingleFlight(self, self._next_batch, self._on_read, reraise)

    def image(self, file: Path) -> QImage | None:
        """Return the thumbnail of `file`, or a null image if it can't be read.

        If it hasn't been read, request it and return None.
        """
        image = self._images.get(file)
        if image is None:
            self._requested.pop(file, None)
            self._requested[file] = None  # at the end, since the latest requests are read first
            self._flight.request()
        return image

    def clear(self) -> None:
        """Drop all thumbnails and requests, for example because the files may have changed."""
        self._requested.clear()
        self._images.clear()

    def close(self) -> None:
        """Wait for the thumbnails that are being read when the window closes."""
        self._requested.clear()
        self._flight.finish()

    def _next_batch(self) -> Callable[[], dict[Path, QImage]] | None:
        """Take the latest requests, and return a function that reads their images, or None if there are none."""
        files = list(reversed(self._requested))[:_BATCH]
        for file in files:
            del self._requested[file]
        return partial(self._read, files) if files else None

    def _read(self, files: Sequence[Path]) -> dict[Path, QImage]:
        """Read thumbnails on a worker thread. Files that can't be read get a null image."""
        images_or_messages = {file: read_image(file, self._side) for file in files}
        return {file: QImage() if isinstance(image, str) else image for file, image in images_or_messages.items()}

    def _on_read(self, images: dict[Path, QImage]) -> None:
        """Add thumbnails to the cache, drop the oldest ones if it is full, and read the next batch."""
        self._images |= images
        while len(self._images) > _CAPACITY:
            del self._images[next(iter(self._images))]
        self._flight.request()
        self.loaded.emit()
