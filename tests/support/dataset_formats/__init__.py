"""Writers of every dataset format that Footplate reads, from one ground truth."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, NamedTuple

from tests.support.dataset_formats.truth import TrueImage, Truth


class Writer(NamedTuple):
    """A writer of a format.

    Attributes:
        name: Name of its module.
        variants: Layouts that it knows.
        write: Write a truth to a folder in one of them.
        expect: Return what an image with annotations of a kind is to be read as, if its writer changes the truth: other
            classes, pixels of no class. None if it does not.
    """

    name: str
    variants: tuple[str, ...]
    write: Callable[[Truth, Path, str], None]
    expect: Callable[[TrueImage, str], Any] | None = None


def _writers() -> tuple[Writer, ...]:
    modules = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]
    return tuple(
        Writer(
            module.__name__.rpartition(".")[2],
            tuple(module.VARIANTS),
            module.write,
            getattr(module, "expect", None),
        )
        for module in modules
        if hasattr(module, "VARIANTS")
    )


WRITERS = _writers()
