"""What can be set of a search besides the fields that it varies, as rows of its form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.contract.job import FIELDS, Field
from engine.contract.search import MOST_REPEATS, PARAMETERS, SECONDS, Search
from gui.form.field_row import FieldRow
from gui.widgets.editors import BoolEditor, ChoiceEditor, Editor, FloatEditor, IntEditor, TextEditor

NO_GOAL = ""
_SAMPLERS = [
    ("tpe", "TPE", "Learns from the trials so far where good settings are (Bergstra et al. 2011)"),
    ("random", "Random", "Chooses at random"),
    ("grid", "Grid", "Tries all combinations of lists and stepped ranges"),
    ("nsgaii", "NSGA-II", "An evolutionary search, for two goals (Deb et al. 2002)"),
]
_PRUNERS = [
    ("hyperband", "Hyperband", "Stops trials at several ages, so that late starters get a chance (Li et al. 2018)"),
    ("halving", "Successive halving", "Keeps the better part of the trials at each age (Li et al. 2020)"),
    ("median", "Median", "Stops trials that are below the median of the others at the same epoch"),
    ("none", "None", "Trains every trial to its end"),
]


def _field(name: str, label: str, help_text: str, kind: Any, default: Any, **limits: Any) -> Field:
    return Field(name=name, label=label, help=help_text, group="main", kind=kind, default=default, **limits)


def _int(field: Field, empty: str = "no limit") -> tuple[Field, Editor]:
    return field, IntEditor(field, empty)


def _confirm() -> Field:
    about = "How often the best trials are trained again, each time with another seed. The mean of these repeats decides which is the best."
    return _field("confirm", "Confirm", about, "int", 1, minimum=0, maximum=MOST_REPEATS)


def _best_epochs() -> Field:
    like = FIELDS["epochs"]
    about = "How long the best settings are trained in full."
    return _field("best_epochs", "Best for", about, "int", None, optional=True, minimum=1, maximum=like.maximum)


_ROWS: tuple[Callable[[], tuple[Field, Editor]], ...] = (
    lambda: (_field("name", "Name", "What the search is called.", "text", ""), TextEditor("required")),
    lambda: (_field("goal", "Goal", "What is to become as good as it can.", "choice", ""), ChoiceEditor([])),
    lambda: (_field("against", "Against", "A second goal: the search looks for the best of both.", "choice", NO_GOAL), ChoiceEditor([])),
    lambda: _int(_field("trials", "Trials", "How many are tried.", "int", 20, optional=True, minimum=1, maximum=100_000)),
    lambda: (_field("hours", "Hours", "How long the search starts new trials.", "float", None), FloatEditor(True, "no limit")),
    lambda: _int(_field("total_epochs", "Epochs in all", "How many epochs all trials train together.", "int", None, optional=True, minimum=1, maximum=100_000_000)),
    lambda: (_field("sampler", "Sampler", "How settings are chosen.", "choice", "tpe"), ChoiceEditor(list(_SAMPLERS))),
    lambda: (_field("pruner", "Pruning", "Which trials are stopped early.", "choice", "hyperband"), ChoiceEditor(list(_PRUNERS))),
    lambda: _int(_confirm()),
    lambda: _int(_field("seed", "Sampler seed", "Fixes what is tried.", "int", 0, minimum=0, maximum=2**31 - 1)),
    lambda: _int(_field("devices_per_trial", "Per trial", "How many of the devices a trial has.", "int", 1, minimum=1, maximum=1024)),
    lambda: _int(_best_epochs(), "as long as a trial"),
    lambda: (_field("keep_checkpoints", "Keep all", "Keeps the checkpoints of every trial, not of the best alone.", "bool", False), BoolEditor()),
)  # fmt: skip


def make_rows() -> dict[str, FieldRow]:
    """The rows by their names, each at its default."""
    rows = {}
    for make in _ROWS:
        field, editor = make()
        if field.default is not None or field.optional:
            editor.set_value(field.default)
        rows[field.name] = FieldRow(field, editor, field.default)
    return rows


OTHER_GOALS = [
    (SECONDS, "Training time", "How long a trial trains; less is better"),
    (PARAMETERS, "Parameters", "How many parameters the model has; fewer is better"),
]


def values_of(search: Search) -> dict[str, Any]:
    """A search as plain values, as they stand in a SPACE.toml."""
    space: dict[str, Any] = {}
    for name, dimension in search.space.items():
        if hasattr(dimension, "values"):
            space[name] = ["none" if value is None else value for value in dimension.values]
        else:
            space[name] = {"low": dimension.low, "high": dimension.high}
            space[name] |= {"log": True} if dimension.log else {}
            space[name] |= {"step": dimension.step} if dimension.step is not None else {}
    budget = search.budget
    values = {
        "name": search.name,
        "goals": [goal.measure for goal in search.goals],
        "trials": budget.trials,
        "hours": budget.hours,
        "total_epochs": budget.epochs,
        "sampler": search.sampler,
        "pruner": search.pruner,
        "confirm": search.confirm,
        "seed": search.seed,
        "devices": list(search.devices),
        "devices_per_trial": search.devices_per_trial,
        "best_epochs": search.best_epochs,
        "keep_checkpoints": search.keep_checkpoints,
        "space": space,
    }
    return {name: value for name, value in values.items() if value is not None}
