"""The fields of the strategy: which are in sight, and what the job gets of those that are not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from engine.contract.catalogue import load_catalogue
from engine.contract.job import FIELDS, Job
from gui.form.form import SECTIONS, JobForm
from gui.sources.launcher import resolved

STRATEGY = SECTIONS["Strategy"]


def in_sight(form: JobForm) -> set[str]:
    return {name for name in STRATEGY if not form.rows[name].isHidden()}


def test_strategy_shows_its_fields(form: JobForm) -> None:
    for entry in load_catalogue().strategies:
        form.set_field("strategy", entry.id)
        assert in_sight(form) == {"activation_checkpointing", *entry.fields} - {"stages_per_device"}, entry.id


def test_interleaved_schedule_shows_stages_per_device(form: JobForm) -> None:
    form.set_field("strategy", "pipeline")
    assert "stages_per_device" not in in_sight(form)
    form.set_field("pipeline_schedule", "interleaved_1f1b")
    assert "stages_per_device" in in_sight(form)
    form.set_field("pipeline_schedule", "zbv")
    assert "stages_per_device" not in in_sight(form)


def test_form_has_every_strategy_field(form: JobForm) -> None:
    assert {name for name, field in FIELDS.items() if field.group == "parallel"} == set(STRATEGY)
    assert set().union(*SECTIONS.values()) <= set(form.rows)


def test_idle_strategy_field_is_retained(form: JobForm) -> None:
    form.set_field("strategy", "pipeline")
    form.set_field("microbatches", 16)
    form.cuts.set_value(("layer2",))
    form.set_field("strategy", "ddp")
    form.set_field("bucket_mib", 8)
    values = form.values()
    assert (values["microbatches"], values["cuts"], values["bucket_mib"]) == (None, [], 8.0)
    form.set_field("strategy", "pipeline")
    values = form.values()
    assert (values["microbatches"], values["cuts"], values["bucket_mib"]) == (16, ["layer2"], 25.0)


def test_section_counts_and_resets_visible_fields(form: JobForm) -> None:
    section = next(section for section in form.sections if section.title == "Strategy")
    form.set_field("strategy", "pipeline")
    form.set_field("microbatches", 16)
    form.set_field("pipeline_schedule", "1f1b")
    assert section.mark.text() == "● 2 changed"
    form.set_field("strategy", "ddp")
    assert section.mark.text() == ""
    form.set_field("static_graph", True)
    assert section.mark.text() == "● 1 changed"
    section.reset.click()
    form.set_field("strategy", "pipeline")
    assert section.mark.text() == "● 2 changed"


def test_cuts_have_a_summary_and_reset_to_automatic(form: JobForm, qtbot: QtBot) -> None:
    form.set_field("strategy", "pipeline")
    row = form.rows["cuts"]
    assert form.cuts.line.text() == "automatic"
    assert row.reset.isHidden()
    form.cuts.set_value(("layer1", "layer3"))
    assert form.cuts.line.text() == "moved by hand (2 cuts)"
    assert not row.reset.isHidden()
    qtbot.mouseClick(row.reset, Qt.MouseButton.LeftButton)
    assert form.cuts.line.text() == "automatic"
    assert row.value() == ()


def test_partition_button_requests_the_page(form: JobForm, qtbot: QtBot) -> None:
    with qtbot.waitSignal(form.cut_requested):
        form.cuts.show_button.click()


def test_clip_norm_may_be_empty(form: JobForm) -> None:
    for typed, number in (("0.5", 0.5), (" 1e1 ", 10.0), ("", None)):
        form.rows["clip_norm"].editor.line.setText(typed)  # type: ignore[attr-defined]
        assert form.values()["clip_norm"] == number


def test_invalid_number_is_marked_at_its_field(form: JobForm, qtbot: QtBot) -> None:
    form.rows["ema_decay"].editor.line.setText("often")  # type: ignore[attr-defined]
    qtbot.waitUntil(lambda: "Weight average" in form.rows["ema_decay"].problem_label.text())
    training = next(section for section in form.sections if section.title == "Training")
    assert training.body.isVisibleTo(form)


def test_strategy_list_states_requirements(form: JobForm, qtbot: QtBot) -> None:
    box = form.rows["strategy"].editor.control
    qtbot.waitUntil(lambda: "needs 2 devices" in box.itemText(box.findData("ddp")))  # type: ignore[attr-defined]
    model = box.model()  # type: ignore[attr-defined]
    assert model.flags(model.index(box.findData("ddp"), 0)) & Qt.ItemFlag.ItemIsEnabled  # type: ignore[attr-defined]
    form.set_devices(("cpu", "cpu"))
    qtbot.waitUntil(lambda: box.itemText(box.findData("ddp")) == "DistributedDataParallel")  # type: ignore[attr-defined]
    form.set_field("strategy", "ddp")
    qtbot.waitUntil(lambda: "one device only" in box.itemText(box.findData("single")))  # type: ignore[attr-defined]


def test_indivisible_model_is_a_strategy_problem(form: JobForm, qtbot: QtBot) -> None:
    models = form.catalogue.models
    whole = msgspec.structs.replace(
        models[0], uncuttable="more than one value crosses everywhere", split_points=(), tensor_parallel=False
    )
    form.environment.catalogue = msgspec.structs.replace(form.catalogue, models=(whole, *models[1:]))
    form.set_devices(("cpu", "cpu"))
    form.set_field("model", whole.id)
    box = form.rows["strategy"].editor.control
    marked = f"Pipeline – {whole.title} can't be cut"
    qtbot.waitUntil(lambda: box.itemText(box.findData("pipeline")) == marked)  # type: ignore[attr-defined]
    assert box.itemText(box.findData("tp")) == f"Tensor parallel – {whole.title} can't be split across devices"  # type: ignore[attr-defined]
    form.set_field("strategy", "pipeline")
    qtbot.waitUntil(lambda: "can't be cut" in form.rows["strategy"].problem_label.text())
    assert "more than one value crosses everywhere" in form.rows["strategy"].problem_label.text()


def test_schedules_have_titles(form: JobForm) -> None:
    box = form.rows["pipeline_schedule"].editor.control
    titles = [box.itemText(index) for index in range(box.count())]  # type: ignore[attr-defined]
    assert titles == ["GPipe", "1F1B", "Interleaved 1F1B", "ZB1P (zero bubble)", "ZBV (zero bubble)"]


def test_form_returns_every_strategy_field(form: JobForm, images: Path) -> None:
    pipeline = Job.from_fields(
        dataset=str(images),
        strategy="pipeline",
        devices=("cpu", "cpu"),
        accumulation=2,
        clip_norm=1.5,
        ema_decay=0.9999,
        resume_from="/runs/a/last.pt",
        activation_checkpointing=True,
        pipeline_schedule="interleaved_1f1b",
        stages_per_device=3,
        microbatches=4,
        cuts=("layer1", "layer2", "layer3", "layer4", "avgpool"),
    )
    ddp = Job.from_fields(
        dataset=str(images),
        strategy="ddp",
        devices=("cpu", "cpu"),
        balance="speed",
        bucket_mib=12.5,
        gradient_compression="bf16",
        static_graph=True,
        sync_batchnorm=True,
    )
    for job in (pipeline, ddp):
        form.set_job(job)
        form.set_devices(job.parallel.devices)
        form.validate()
        assert form.job == job


def test_resume_path_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolved(Job.from_fields(resume_from="run/last.pt")).checkpoints.resume_from == str(tmp_path / "run/last.pt")
    assert resolved(Job()).checkpoints.resume_from == ""
