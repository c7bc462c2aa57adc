"""Declarations of tasks, found by a scan of the folders in `engine.tasks`. Torch-free.

A task is a folder. Its module `entry` declares it in a constant `TASK`; nothing outside the folder names it, so that
deleting the folder removes the task.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module

from engine.contract.catalogue import AnnotationKind, TaskEntry
from engine.data.formats.format import Format

TASKS_PACKAGE = "engine.tasks"


@dataclass(frozen=True)
class TaskDeclaration:
    """A task and the dataset formats that come with it.

    Attributes:
        entry: The task's entry in the catalogue.
        implementation: Path of its `Task` class, "module:name", which is imported with torch when it is needed.
        position: Position in lists of tasks, models and formats; of several tasks for a folder the first is chosen.
        formats: Dataset formats that only this task reads.
        kinds: Kinds of annotations that only this task learns from, by id.
    """

    entry: TaskEntry
    implementation: str
    position: int
    formats: tuple[Format, ...] = ()
    kinds: Mapping[str, AnnotationKind] = field(default_factory=dict)


@lru_cache(maxsize=1)
def task_declarations() -> tuple[TaskDeclaration, ...]:
    """Return the declarations of all folders in `engine.tasks`, by position."""
    folders = pkgutil.iter_modules(import_module(TASKS_PACKAGE).__path__, f"{TASKS_PACKAGE}.")
    found: list[TaskDeclaration] = [import_module(f"{each.name}.entry").TASK for each in folders if each.ispkg]
    return tuple(sorted(found, key=lambda each: each.position))
