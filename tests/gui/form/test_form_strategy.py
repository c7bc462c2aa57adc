"""Fields that depend on the strategy: their visibility, and the values in the job while they are hidden."""

from __future__ import annotations

import msgspec
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from engine.contract.catalogue import load_catalogue
from engine.contract.job import FIELDS
from gui.form.fields import SECTIONS
from gui.form.form import JobForm

STRATEGY = SECTIONS["Strategy"]


def in_sight(form: JobForm) -> set[str]:
    return {name for name in STRATEGY if not form.rows[name].isHidden()}


def test_strategy_shows_its_fields(form: JobForm) -> None:
    for entry in load_catalogue().strategies:
        form.set_field("strategy", entry.id)
        assert in_sight(form) == {"activation_checkpointing", *entry.fields} - {"stages_per_device"}, entry.id


def test_automatic_strategy_follows_the_devices(filled: JobForm, qtbot: QtBot) -> None:
    row = filled.rows["strategy"]
    qtbot.waitUntil(lambda: row.note.text() == "Single device on CPU")
    assert "bucket_mib" not in in_sight(filled)
    filled.set_devices(("cpu", "ws1:cpu"))
    qtbot.waitUntil(lambda: row.note.text() == "DistributedDataParallel on CPU and ws1 CPU")
    assert "bucket_mib" in in_sight(filled)
    assert (filled.field_value("strategy"), row.problem_label.text()) == ("auto", "")
    filled.set_devices(())
    qtbot.waitUntil(lambda: row.note.text() == "")
    filled.set_field("strategy", "ddp")
    qtbot.waitUntil(lambda: row.note.text() == filled.catalogue.strategy("ddp").summary)


def test_form_has_every_strategy_field(form: JobForm) -> None:
    assert {name for name, field in FIELDS.items() if field.group == "parallel"} == set(STRATEGY)
    assert set().union(*SECTIONS.values()) <= set(form.rows)


def test_split_points_have_a_summary_and_reset_to_automatic(form: JobForm, qtbot: QtBot) -> None:
    form.set_field("strategy", "pipeline")
    row = form.rows["split_points"]
    qtbot.keyClicks(form.split_points.line, "x")
    assert form.split_points.line.text() == "automatic"
    assert row.reset.isHidden()
    form.split_points.set_value(("layer1", "layer3"))
    assert form.split_points.line.text() == "moved by hand (2 split points)"
    assert form.split_points.line.toolTip() == "layer1, layer3"
    assert not row.reset.isHidden()
    qtbot.mouseClick(row.reset, Qt.MouseButton.LeftButton)
    assert form.split_points.line.text() == "automatic"
    assert row.value() == ()


def test_split_points_button_requests_the_page(form: JobForm, qtbot: QtBot) -> None:
    with qtbot.waitSignal(form.split_points_requested):
        form.split_points.show_button.click()


def test_clip_norm_may_be_empty(form: JobForm) -> None:
    for typed, number in (("0.5", 0.5), (" 1e1 ", 10.0), ("", None)):
        form.rows["clip_norm"].editor.line.setText(typed)
        assert form.values()["clip_norm"] == number


def test_indivisible_model_is_a_strategy_problem(form: JobForm, qtbot: QtBot) -> None:
    models = form.catalogue.models
    facts = {"unsplittable_reason": "more than one value crosses everywhere", "possible_split_points": ()}
    unsplittable = msgspec.structs.replace(models[0], **facts, tensor_parallel=False)
    form.environment.catalogue = msgspec.structs.replace(form.catalogue, models=(unsplittable, *models[1:]))
    form.set_devices(("cpu", "cpu"))
    form.set_field("model", unsplittable.id)
    box = form.rows["strategy"].editor.control
    marked = f"Pipeline – {unsplittable.title} can't be split into stages"
    qtbot.waitUntil(lambda: box.itemText(box.findData("pipeline")) == marked)
    assert box.itemText(box.findData("tp")) == f"Tensor parallel – {unsplittable.title} can't be split across devices"
    form.set_field("strategy", "pipeline")
    reason = models[0].unsplittable_reason or "more than one value crosses everywhere"
    qtbot.waitUntil(lambda: reason in form.rows["strategy"].problem_label.text())
