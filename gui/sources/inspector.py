"""Child processes that inspect a dataset folder and newly installed plug-ins."""

from __future__ import annotations

from PySide6.QtCore import QObject

from engine.contract.catalogue import load_catalogue, supplement_file
from engine.contract.dataset import INSPECTION, InspectionProgress, inspector_options
from engine.contract.job import Job
from gui.sources.json_lines import Answer, JsonLinesProcess
from gui.translation import tr

_REPORT_LIMIT_BYTES = 64 << 20


class Inspector(JsonLinesProcess):
    """Inspection of one dataset folder at a time (``python -m engine.data``).

    Its progress is an InspectionProgress and its result a DatasetReport.

    Attributes:
        folder: The last folder inspected, "" before the first.
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
        """Inspect the folder of `job` for its task."""
        self.folder = job.data.dataset
        self.run([job.data.dataset, *inspector_options(job, load_catalogue())], first=InspectionProgress(0, 0))


class PluginReader(JsonLinesProcess):
    """Import of newly installed plug-ins into the catalogue's supplement (``python -m engine.catalogue --plugins``).

    `done` means that the catalogue lists what the plug-ins add.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        # Plug-ins may print anything while they are imported.
        super().__init__("engine.catalogue", tr("Reading the installed plug-ins"), bytes, parent)

    def start(self) -> None:
        """Import the plug-ins unless the supplement is up to date."""
        file = supplement_file()
        if file is not None and not file.exists():
            self.run(["--plugins"])

    def answer_at_exit(self, code: int) -> Answer | None:
        """Accept the answer if the supplement was written."""
        file = supplement_file()
        if file is None or not file.exists():
            return None
        load_catalogue.cache_clear()
        return Answer(None)
