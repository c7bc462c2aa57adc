"""Rows of the search form, except the fields to vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.contract.job import FIELDS, Field
from engine.contract.search import MAX_REPEATS, PARAMETERS, SECONDS
from gui.form.field_row import FieldRow
from gui.translation import tr
from gui.widgets.editors import BoolEditor, ChoiceEditor, Editor, FloatEditor, IntEditor, TextEditor

NO_GOAL = ""
_SAMPLERS = [
    ("tpe", "TPE", tr("Learns from finished trials where good settings are (Bergstra et al. 2011)")),
    ("random", tr("Random"), tr("Chooses at random")),
    ("grid", tr("Grid"), tr("Tries all combinations of lists and stepped ranges")),
    ("nsgaii", "NSGA-II", tr("An evolutionary search, for two goals (Deb et al. 2002)")),
]
_PRUNERS = [
    (
        "hyperband",
        tr("Hyperband"),
        tr("Stops trials at several ages, so that late starters get a chance (Li et al. 2018)"),
    ),
    ("halving", tr("Successive halving"), tr("Keeps the best fraction of the trials at each age (Li et al. 2020)")),
    ("median", tr("Median"), tr("Stops trials that are below the median of the others at the same epoch")),
    ("none", tr("None"), tr("Trains every trial to its end")),
]


def _field(name: str, label: str, help_text: str, kind: Any, default: Any, **limits: Any) -> Field:
    return Field(name=name, label=label, help=help_text, group="main", kind=kind, default=default, **limits)


def _int(field: Field, empty: str = "no limit") -> tuple[Field, Editor]:
    return field, IntEditor(field, empty)


_CONFIRM_HELP = tr(
    "How often the best trials are trained again with other seeds. The mean of these repeats decides which trial is best."
)

_ROWS: tuple[Callable[[], tuple[Field, Editor]], ...] = (
    lambda: (_field("name", tr("Name"), tr("Name of the search."), "text", ""), TextEditor("required")),
    lambda: (_field("goal", tr("Goal"), tr("Result to optimize."), "choice", ""), ChoiceEditor([])),
    lambda: (_field("against", tr("Against"), tr("A second goal; the search looks for the best trade-offs."), "choice", NO_GOAL), ChoiceEditor([])),
    lambda: _int(_field("trials", tr("Trials"), tr("Number of trials."), "int", 20, optional=True, minimum=1, maximum=100_000)),
    lambda: (_field("hours", tr("Hours"), tr("Time during which new trials start."), "float", None), FloatEditor(True, "no limit")),
    lambda: _int(_field("total_epochs", tr("Total epochs"), tr("Sum of the epochs of all trials."), "int", None, optional=True, minimum=1, maximum=100_000_000)),
    lambda: (_field("sampler", tr("Sampler"), tr("Method that chooses settings."), "choice", "tpe"), ChoiceEditor(list(_SAMPLERS))),
    lambda: (_field("pruner", tr("Pruning"), tr("Method that stops trials early."), "choice", "hyperband"), ChoiceEditor(list(_PRUNERS))),
    lambda: _int(_field("confirm", tr("Confirm"), _CONFIRM_HELP, "int", 1, minimum=0, maximum=MAX_REPEATS)),
    lambda: _int(_field("seed", tr("Sampler seed"), tr("Makes the choice of settings reproducible."), "int", 0, minimum=0, maximum=2**31 - 1)),
    lambda: _int(_field("devices_per_trial", tr("Per trial"), tr("Number of devices of each trial."), "int", 1, minimum=1, maximum=1024)),
    lambda: _int(_field("best_epochs", tr("Best for"), tr("Epochs of the full training with the best settings."), "int", None, optional=True, minimum=1, maximum=FIELDS["epochs"].maximum), "as long as a trial"),
    lambda: (_field("keep_checkpoints", tr("Keep all"), tr("Keeps the checkpoints of all trials, not only of the best."), "bool", False), BoolEditor()),
)  # fmt: skip


OTHER_GOALS = [
    (SECONDS, tr("Training time"), tr("Duration of a trial; less is better")),
    (PARAMETERS, tr("Parameters"), tr("Number of the model's parameters; fewer is better")),
]


def make_rows() -> dict[str, FieldRow]:
    """Return the rows by name, with their defaults."""
    rows = {}
    for make in _ROWS:
        field, editor = make()
        if field.default is not None or field.optional:
            editor.set_value(field.default)
        rows[field.name] = FieldRow(field, editor, field.default)
    return rows
