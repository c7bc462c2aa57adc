"""Writer of the notes about runs."""

from __future__ import annotations

import shutil

from msgspec.structs import replace
from pytestqt.qtbot import QtBot

from engine.runs.folder import RunSummary
from gui.sources.notes_writer import NotesWriter
from tests.gui.sources.written_runs import write_run


def test_notes_writer_stores_all_changes_in_order(qtbot: QtBot) -> None:
    run, removed = write_run(8, name="job").summary(), write_run(8).summary()
    shutil.rmtree(removed.folder)
    listed = {run.run_id: replace(run, epochs=7)}  # the list may have a newer summary
    writer, written, failed = NotesWriter(listed.get), list[RunSummary](), list[str]()
    writer.written.connect(written.append)
    writer.failed.connect(failed.append)
    writer.change(run, text="too slow")
    writer.change(removed, text="gone")
    for name in ("first", "second"):
        writer.change(run, name=name)
    writer.change(run, tags=("v2",), favorite=True)
    writer.close()
    assert [each.name for each in written] == ["job", "first", "second", "second"]
    assert written[-1] == replace(
        listed[run.run_id], name="second", tags=("v2",), notes="too slow", favorite=True, set_aside=False
    )
    error = f"Could not save the notes of {removed.run_id}: No such file or directory ({removed.folder})."
    assert failed == [error]
    listed.clear()
    writer.change(run, favorite=False)
    writer.close()
    assert len(written) == 4
