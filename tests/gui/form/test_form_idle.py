"""Fields that have no effect. They must be hidden, keep their values, and not count as changed."""

from __future__ import annotations

from pathlib import Path

from engine.contract.idle_fields import find_idle_fields
from engine.contract.job import Job
from engine.contract.recipes import save_recipe
from gui.form.form import JobForm
from gui.form.panel import JobPanel
from gui.sources.resume_fork import Prefill
from tests.gui.sources.written_runs import write_run


def visible_fields(form: JobForm) -> set[str]:
    return {name for name, row in form.rows.items() if not row.isHidden()}


def change(form: JobForm, **changes: object) -> None:
    for name, value in changes.items():
        form.rows[name].set_value(value)


EFFECTS: list[tuple[dict[str, object], set[str], set[str]]] = [
    ({"optimizer": "adagrad"}, {"momentum", "beta2", "nesterov"}, {"optimizer_kernel"}),
    ({"optimizer": "sgd"}, {"beta2"}, {"momentum", "nesterov"}),
    ({"optimizer": "sgd", "momentum": 0.0}, {"nesterov"}, {"momentum"}),
    ({"schedule": "onecycle", "warmup_steps": 5}, {"warmup_epochs", "warmup_steps", "warmup_start"}, {"schedule"}),
    ({"schedule": "linear", "warmup_epochs": 1.0}, {"milestones"}, {"final_rate", "warmup_start"}),
    ({"ema_decay": 0.99, "weight_decay": 0.0}, {"decay_norms"}, {"ema_ramp"}),
    ({"task": "segmentation", "loss": "dice"}, {"class_weights"}, {"loss"}),
    ({"strategy": "pipeline"}, {"compile", "memory_format", "stages_per_device"}, {"split_points"}),
    ({"strategy": "pipeline", "pipeline_schedule": "interleaved_1f1b"}, set(), {"stages_per_device"}),
    ({"strategy": "pipeline", "pipeline_schedule": "zbv"}, {"stages_per_device"}, set()),
    ({"epochs": 3, "freeze_epochs": 3}, {"layer_decay"}, {"head_rate"}),
]
"""Test cases: values to select, the fields that they hide, and fields that must remain visible."""


def test_fields_are_visible_when_they_apply(form: JobForm) -> None:
    for section in form.sections:
        section.set_open(True)
    for chosen, hidden, visible in EFFECTS:
        form.set_job(Job())
        change(form, **chosen)
        assert visible <= visible_fields(form), chosen
        assert not hidden & visible_fields(form), chosen
        values = {name: row.editor.value() for name, row in form.rows.items()}
        idle = find_idle_fields({**values, "devices": form.devices}, form.catalogue)
        assert form.rows.keys() - visible_fields(form) == idle.keys(), chosen


def test_hidden_values_return_with_their_field(form: JobForm) -> None:
    change(form, schedule="cosine", final_rate=0.25, warmup_steps=7, warmup_start=0.5)
    section = next(section for section in form.sections if section.title == "Schedule")
    assert section.mark.text() == "● 3 changed"
    change(form, schedule="onecycle")
    values = form.values()
    assert (values["final_rate"], values["warmup_steps"], values["warmup_start"]) == (0.0, 0, 0.01)
    assert section.mark.text() == "● 1 changed"
    change(form, schedule="linear")
    values = form.values()
    assert (values["final_rate"], values["warmup_steps"], values["warmup_start"]) == (0.25, 7, 0.5)


def test_recipe_values_without_effect_count_as_unchanged(job_panel: JobPanel, images: Path) -> None:
    text = {"optimizer": "adamw", "beta2": 0.95, "schedule": "step", "milestones": (2,)}
    save_recipe("Mine", "", "classification", text)
    job_panel.form.recipes.reload()
    form = job_panel.form
    form.set_job(Job.from_fields(dataset=str(images)))
    form.recipes.reset()
    change(form, recipe="mine")
    form.validate()
    assert (form.values()["beta2"], form.values()["milestones"]) == (0.95, (2,))
    change(form, optimizer="sgd", schedule="cosine")
    form.validate()
    assert (form.values()["beta2"], form.values()["milestones"]) == (0.999, ())
    marks = [section.mark.text() for section in form.sections[1:] if section.mark.text()]
    assert marks == ["● 1 changed"] * 2  # only the optimizer and the schedule have changed
    change(form, optimizer="adamw", schedule="step")
    form.validate()
    assert (form.values()["beta2"], form.values()["milestones"]) == (0.95, (2,))
    assert not [section.mark.text() for section in form.sections[1:] if section.mark.text()]


def test_prefill_keeps_values_without_effect(job_panel: JobPanel, images: Path) -> None:
    run = write_run(
        8, "paused", dataset=str(images), strategy="pipeline", devices=("cpu", "cpu"), compile="off", beta2=0.9,
        bucket_mib=8.0,
    )  # fmt: skip
    job = run.job()
    prefill = Prefill(text="Goes on", job=job, run=run)
    job_panel.begin_prefill(prefill)
    form = job_panel.form
    form.set_devices(job.parallel.devices)
    assert prefill.changes(form.values()) == {}
    change(form, strategy="ddp")
    assert prefill.changes(form.values()) == {"strategy": "ddp"}
    assert form.field_value("bucket_mib") == 8.0
    job_panel.begin_prefill(Prefill(text="A fork", job=job))
    form = job_panel.form
    form.validate()
    assert form.job == job
    change(form, optimizer="adamw")
    form.validate()
    assert form.job == job.with_fields(optimizer="adamw")
