"""Registry of built-in tasks and tasks from plug-ins, by id."""

from __future__ import annotations

import pkgutil

from engine.data.formats.declarations import task_declarations
from engine.system.plugins import Registry, UnusablePluginError
from engine.tasks.base import Task


def _create_plugin_task(name: str, loaded: object) -> Task:
    """Create the task of the class `loaded`, which a plug-in registers under the id `name`.

    Raises UnusablePluginError if it is not a subclass of Task with this id.
    """
    if not (isinstance(loaded, type) and issubclass(loaded, Task)):
        raise UnusablePluginError(f"it is a {type(loaded).__name__}, not a subclass of Task of engine.tasks.base")
    if loaded.entry.id != name:
        raise UnusablePluginError(f"the id of its entry is “{loaded.entry.id}”")
    return loaded()


TASKS: Registry[Task] = Registry(
    "footplate.tasks",
    {each.entry.id: pkgutil.resolve_name(each.implementation)() for each in task_declarations()},
    _create_plugin_task,
)
