"""Check boxes that select the devices for an evaluation or another use of a model."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from engine.contract.devices import CPU
from gui.run.model_choice import CheckpointEditor, DevicesEditor
from tests.gui.sources.devices.snapshots import UUIDS
from tests.gui.sources.written_runs import write_run
from tests.support.widgets import ShowWidget

ONE, TWO, *_ = UUIDS


def test_checkpoint_editor_lists_the_best_one_first(show_widget: ShowWidget, qtbot: QtBot) -> None:
    editor, run = show_widget(CheckpointEditor()), write_run(8)
    for name in ("best.pt", "last.pt", "epoch-3-step-30.pt"):
        (run.checkpoints / name).write_bytes(b"weights")
    for chosen in ("best.pt", "last.pt"):
        editor.set_value(chosen)
        with qtbot.waitSignal(editor.refreshed):
            editor.show_run(run)
        titles = [editor.box.itemText(index).partition(" ·")[0] for index in range(3)]
        assert (titles[0], sorted(titles), editor.value()) == ("best", ["best", "epoch 3", "last"], chosen)
    for name in ("best.pt", "last.pt", "epoch-3-step-30.pt"):
        (run.checkpoints / name).unlink()
    with qtbot.waitSignal(editor.refreshed):
        editor.refresh()
    assert (editor.box.count(), editor.value(), editor.has_checkpoint) == (1, "best", False)


@pytest.mark.parametrize(
    ("of_run", "toggled", "chosen"),
    [
        ((ONE,), "", (ONE,)),
        ((TWO, ONE), "", (ONE, TWO)),
        (("GPU-of-another-machine",), "", (CPU,)),
        ((CPU, CPU, CPU), "", (CPU, CPU, CPU)),
        ((), "", (CPU,)),
        ((ONE, TWO), CPU, (CPU,)),
        ((CPU, CPU), TWO, (TWO,)),
        ((ONE,), TWO, (ONE, TWO)),
        ((ONE, TWO), ONE, (TWO,)),
    ],
)
def test_devices_editor_chooses_devices(
    show_widget: ShowWidget, of_run: tuple[str, ...], toggled: str, chosen: tuple[str, ...]
) -> None:
    editor = show_widget(DevicesEditor("Evaluate"))
    edits: list[tuple[str, ...]] = []
    editor.edited.connect(lambda: edits.append(editor.value()))
    editor.set_gpus({ONE: "GPU 0", TWO: "GPU 1"})
    editor.show_devices(of_run)
    if toggled:
        editor.boxes[toggled].click()
    assert editor.value() == edits[-1] == chosen
    assert [box.text() for box in editor.boxes.values()] == ["GPU 0", "GPU 1", "CPU"]
    assert [box.isChecked() for box in editor.boxes.values()] == [device in chosen for device in (ONE, TWO, CPU)]
