"""The tasks that Footplate knows, by id."""

from __future__ import annotations

from engine.tasks.base import Measures, Task, TaskError
from engine.tasks.classification import Classification

TASKS: dict[str, Task] = {task.entry.id: task for task in (Classification(),)}

__all__ = ["TASKS", "Measures", "Task", "TaskError"]
