"""Declarations of the tasks in the folder `engine.tasks`. Torch-free.

Each task is a folder. Its module `entry` declares the task in a constant `TASK`. Nothing outside the folder names the
task, so deleting the folder removes it.
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
    """Declaration of a task, with the dataset formats that only this task can read.

    Attributes:
        implementation: Path to its `Task` class, "module:name". It needs torch, and is only imported when it is used.
        position: Position in lists of tasks, models and formats. If several tasks fit a folder, the first is chosen.
        formats: Dataset formats that only this task can read.
        kinds: Kinds of annotations that only this task can learn from, by id.
    """

    entry: TaskEntry
    implementation: str
    position: int
    formats: tuple[Format, ...] = ()
    kinds: Mapping[str, AnnotationKind] = field(default_factory=dict)


@lru_cache(maxsize=1)
def task_declarations() -> tuple[TaskDeclaration, ...]:
    """Return the declarations of all tasks in `engine.tasks`, sorted by position."""
    folders = pkgutil.iter_modules(import_module(TASKS_PACKAGE).__path__, f"{TASKS_PACKAGE}.")
    found: list[TaskDeclaration] = [import_module(f"{each.name}.entry").TASK for each in folders if each.ispkg]
    return tuple(sorted(found, key=lambda each: each.position))
