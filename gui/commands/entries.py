"""Entries of the command palette."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QWidget

from engine.contract.catalogue import Catalogue
from engine.runs.folder import RunFolder, RunSummary
from gui.actions import Action
from gui.commands.palette import Entry
from gui.commands.recent import titles_of
from gui.format import localised, moment
from gui.preferences.declared import SETTINGS
from gui.titles import model_title, run_title, strategy_title
from gui.translation import tr


def of_actions(actions: Iterable[Action], window: QWidget) -> Iterator[Entry]:
    """Yield the window's commands, and those of the page on screen."""
    for action in actions:
        place = action.parent()
        if place is window or (isinstance(place, QWidget) and place.isVisible()):
            title = f"{action.title} theme" if action.objectName().endswith("_theme") else action.title
            yield Entry(
                tr("Command"),
                title,
                action.trigger,
                action.tip,
                action.shortcut().toString(QKeySequence.SequenceFormat.NativeText),
                action.disabled_reason,
            )


def of_settings(show: Callable[[str], object]) -> Iterator[Entry]:
    for setting in SETTINGS:
        yield Entry(tr("Setting"), setting.title, partial(show, setting.key), f"{setting.section}: {setting.help}")


def of_models(catalogue: Catalogue, choose: Callable[[str, str], object]) -> Iterator[Entry]:
    """Yield the models; `choose` takes a task and a model."""
    tasks = {task.id: task.title for task in catalogue.tasks}
    for model in catalogue.models:
        task = tasks.get(model.task, model.task)
        detail = f"{task} · {localised(model.parameters / 1e6, 1)} million parameters · {model.id}"
        yield Entry(tr("Model"), model.title, partial(choose, model.task, model.id), detail)


def of_runs(runs: Sequence[RunSummary], show: Callable[[RunFolder], object]) -> Iterator[Entry]:
    for run in runs:
        parts = (run.state, model_title(run.model), strategy_title(run.strategy), moment(run.started), *run.tags)
        detail = " · ".join((*parts, run.run_id))
        yield Entry(tr("Run"), run_title(run), partial(_show_run, run.folder, show), detail)


def of_datasets(folders: Sequence[str], choose: Callable[[str], object]) -> Iterator[Entry]:
    for folder, title in titles_of(folders).items():
        yield Entry(tr("Dataset"), title, partial(choose, folder), folder)


def of_gpus(titles: dict[str, str], show: Callable[[str], object]) -> Iterator[Entry]:
    """Yield GPUs, whose titles are given by their keys in the history."""
    for key, title in titles.items():
        yield Entry("GPU", title, partial(show, key), tr("Shows it in the Monitor"))


def _show_run(folder: str, show: Callable[[RunFolder], object]) -> None:
    show(RunFolder(folder))
