"""Writers of every dataset format that Footplate reads, from one ground truth."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import NamedTuple

from tests.support.dataset_formats.truth import Truth


class Writer(NamedTuple):
    """A writer: the name of its module, the layouts that it knows, and `write(truth, folder, variant)`."""

    name: str
    variants: tuple[str, ...]
    write: Callable[[Truth, Path, str], None]


def _writers() -> tuple[Writer, ...]:
    modules = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]
    return tuple(
        Writer(module.__name__.rpartition(".")[2], tuple(module.VARIANTS), module.write)
        for module in modules
        if hasattr(module, "VARIANTS")
    )


WRITERS = _writers()
