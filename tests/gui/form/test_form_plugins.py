"""Plug-ins in the form: models, formats, metrics, and fields for their options."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from pytestqt.qtbot import QtBot

from engine.contract.catalogue import Catalogue, Measure, Supplement, load_catalogue
from engine.contract.job import Job
from engine.contract.problems import Problem
from gui.form.fields import METHOD
from gui.form.form import JobForm
from gui.form.panel import JobPanel
from gui.sources.inspector import PluginReader
from gui.sources.resume_fork import Prefill
from tests.engine.contract.test_options import FIELDS
from tests.gui.form.test_form import problem_at
from tests.gui.form.test_form_tasks import list_offered
from tests.support.installed import install

LEFT_OUT = Problem("dataset", "The plug-in “elm” is left out.", "Uninstall trees.", "warning")


@pytest.fixture
def catalogue() -> Catalogue:
    shipped = load_catalogue()
    resnet = shipped.model("resnet18")
    assert resnet is not None
    narrow = msgspec.structs.replace(resnet, id="narrow", title="Narrow", package="trees", options=FIELDS)
    ddp = shipped.strategy("ddp")
    assert ddp is not None
    slow = msgspec.structs.replace(ddp, id="slow", title="Slow DDP", options=FIELDS[:1])
    measure = Measure("calibration", "Calibration error", higher_is_better=False)
    return shipped.with_plugins(
        Supplement(models=(narrow,), strategies=(slow,), metrics={"classification": (measure,)}, problems=(LEFT_OUT,))
    )


def test_plugins_appear_when_read(form: JobForm, catalogue: Catalogue, images: Path, qtbot: QtBot) -> None:
    with qtbot.waitSignal(form.folder_chosen):
        form.set_field("dataset", str(images))
    form.set_field("model", "narrow")
    qtbot.waitUntil(lambda: "There is no model" in problem_at(form, "model"))
    with qtbot.waitSignal(form.folder_chosen):  # the folder may have the format of a plug-in
        form.set_catalogue(catalogue)
    assert problem_at(form, "model") == ""
    assert "Calibration error" in list_offered(form)
    assert "The plug-in “elm” is left out." in problem_at(form, "dataset")
    assert list(form.options.rows) == ["width", "slope", "pooling", "bias", "note"]
    assert not form.options.isHidden()
    form.set_field("model", "resnet18")
    assert form.options.isHidden()
    form.set_field("strategy", "slow")
    assert list(form.options.rows) == ["width"]
    strategies = [
        msgspec.structs.replace(entry, options=FIELDS[1:3]) if entry.id == "ddp" else entry
        for entry in catalogue.strategies
    ]
    form.set_catalogue(msgspec.structs.replace(catalogue, strategies=tuple(strategies)))
    form.set_field("strategy", "auto")
    for devices, names in ((("cpu",), []), (("cpu", "cpu"), ["slope", "pooling"])):
        form.set_devices(devices)
        assert list(form.options.rows) == names


def test_losses_of_plugin_task_are_offered_when_read(form: JobForm, catalogue: Catalogue) -> None:
    form.set_field("task", "leaves")
    classification = catalogue.task("classification")
    assert classification is not None
    leaves = msgspec.structs.replace(classification, id="leaves", title="Leaves", losses=("focal", "dice"))
    form.set_catalogue(catalogue.with_plugins(Supplement(tasks=(leaves,))))
    assert form.field_value("loss") == "focal"


def test_plugin_options_reach_job_and_problems(form: JobForm, catalogue: Catalogue, qtbot: QtBot) -> None:
    form.set_catalogue(catalogue)
    form.set_job(Job.from_fields(model="narrow", options={"width": 16}))
    qtbot.waitUntil(lambda: form.job is not None and form.job.options == {"width": 16})
    form.options.rows["bias"].set_value(False)
    form.options.rows["slope"].set_value("steep")
    row = form.options.rows["slope"]
    qtbot.waitUntil(lambda: "is not a number" in row.problem_label.text())
    assert "Slope" in form.train.accessibleDescription() + form.reason.text()
    assert "is not a number" not in form.reason.text()
    assert form.options.rows["bias"].problems == ()
    assert form.body.section(METHOD).is_open
    row.set_value(0.5)
    qtbot.waitUntil(lambda: form.job is not None and form.job.options == {"width": 16, "slope": 0.5, "bias": False})
    form.set_field("model", "resnet18")
    qtbot.waitUntil(lambda: form.job is not None and form.job.options == {})
    form.set_field("model", "narrow")
    qtbot.waitUntil(lambda: form.job is not None and form.job.options == {"width": 16, "slope": 0.5, "bias": False})


def test_prefill_shows_options_of_the_run(
    job_panel: JobPanel, form: JobForm, catalogue: Catalogue, qtbot: QtBot
) -> None:
    form.set_job(Job.from_fields(model="narrow", options={"width": 16}))
    with qtbot.assertNotEmitted(form.user_edited):
        form.set_catalogue(catalogue)
    job_panel.begin_prefill(Prefill("A fork", Job.from_fields(model="narrow", options={"width": 32})))
    assert job_panel.form.options.values() == {"width": 32}
    job_panel.end_prefill()
    assert job_panel.form is form
    assert form.options.values() == {"width": 16}


def test_plugins_that_are_read_during_a_prefill_appear_in_both_forms(
    job_panel: JobPanel, form: JobForm, catalogue: Catalogue
) -> None:
    job_panel.begin_prefill(Prefill("A fork", Job()))
    job_panel.form.set_catalogue(catalogue)
    assert "Calibration error" in list_offered(job_panel.form)
    job_panel.end_prefill()
    assert "Calibration error" in list_offered(form)


@pytest.mark.long
def test_new_plugins_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot) -> None:
    from engine.system.plugins import fingerprint

    site = tmp_path / "site"
    install(site, "trees", {"footplate.models": {"elm": "no_such_trees:ELM"}})
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    fingerprint.cache_clear()
    try:
        reader = PluginReader()
        with qtbot.waitSignal(reader.done):
            reader.start()
        (problem,) = load_catalogue().problems
        assert "No module named 'no_such_trees'" in problem.message
        reader.start()
        assert not reader.running
    finally:
        fingerprint.cache_clear()
        load_catalogue.cache_clear()
