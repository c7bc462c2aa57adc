"""Training strategies: one file per strategy in this package, and those of plug-ins."""

from __future__ import annotations

import importlib
import pkgutil

from engine.contract.catalogue import MESH_DIMENSIONS
from engine.strategies.base import StepResult, Strategy, StrategyError
from engine.system.plugins import Registry, UnusablePluginError


def find_strategies() -> dict[str, type[Strategy]]:
    """Collect the strategies that the modules of this package define, by id.

    Strategies with few mesh dimensions come first, and recommended strategies before others.
    """
    strategies: list[type[Strategy]] = []
    for file in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{file.name}")
        classes = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Strategy)]
        # Without base classes, which have no entry, and without classes that the module has imported.
        strategies += [each for each in classes if "entry" in vars(each) and each.__module__ == module.__name__]
    return {strategy.entry.id: strategy for strategy in sorted(strategies, key=_sort_key)}


def _sort_key(strategy: type[Strategy]) -> tuple[int, list[int], bool, str]:
    entry = strategy.entry
    return (len(entry.mesh), [*map(MESH_DIMENSIONS.index, entry.mesh)], not entry.is_recommended, entry.id)


def _require_strategy(name: str, loaded: object) -> type[Strategy]:
    """Return `loaded` if it is the strategy class of the plug-in `name`. Raises UnusablePluginError if it is not."""
    if not (isinstance(loaded, type) and issubclass(loaded, Strategy)):
        raise UnusablePluginError(f"it is a {type(loaded).__name__}, not a subclass of Strategy of engine.strategies")
    if loaded.entry.id != name:
        raise UnusablePluginError(f"the id of its entry is “{loaded.entry.id}”")
    return loaded


STRATEGIES: Registry[type[Strategy]] = Registry("footplate.strategies", find_strategies(), _require_strategy)
"""Built-in strategies and those of plug-ins, by id."""

__all__ = ["STRATEGIES", "StepResult", "Strategy", "StrategyError"]
