"""Child process that exports a run to a zip file (``footplate export``)."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject

from engine.runs.folder import RunFolder
from gui.sources.json_lines import Answer, JsonLinesProcess
from gui.translation import tr


class Exporter(JsonLinesProcess):
    """Export of one run at a time, in a process since it inspects the machine for seconds.

    Its result is the path of the zip file.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__("footplate", tr("Exporting the run"), bytes, parent)
        self._target = Path()

    def start(self, run: RunFolder, target: Path) -> None:
        """Write `run` to `target`, replacing an existing file."""
        self._target = target
        self.run(["export", run.run_id, "--zip", str(target), "--replace"])

    def answer_at_exit(self, code: int) -> Answer | None:
        """Accept the export if the command succeeded."""
        return None if code else Answer(str(self._target))
