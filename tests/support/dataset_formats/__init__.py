"""Writers of every dataset format that Footplate reads, from one ground truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, NamedTuple

from tests.support.dataset_formats.truth import TrueImage, Truth


class Writer(NamedTuple):
    """A writer of a format.

    Attributes:
        name: Name of its module, which is the id of the format.
        variants: Layouts that it knows.
        named_apart: Further layouts, with the names of the classes in a file of their own.
        without_splits: Layouts without a validation or test split.
        kind: Most detailed kind of annotations of its layouts.
        kinds: The same by layout, for those that differ.
        likely: Layouts that are recognized by their names alone.
        holes: Layouts whose objects have fewer pixels than those of the truth.
        without_empty: Layouts that can't tell images without objects from images that nobody annotated.
        warnings: Key phrase of the warning that a layout deserves.
        write: Write a truth to a folder in one of them.
        expect: Return what an image with annotations of a kind is to be read as, if its writer changes the truth: other
            classes, pixels of no class. None if it does not.
    """

    name: str
    variants: tuple[str, ...]
    named_apart: tuple[str, ...]
    without_splits: frozenset[str]
    kind: str
    kinds: Mapping[str, str]
    likely: tuple[str, ...]
    holes: tuple[str, ...]
    without_empty: frozenset[str]
    warnings: Mapping[str, str]
    write: Callable[[Truth, Path, str], None]
    expect: Callable[[TrueImage, str], Any] | None = None


def _writer(module: ModuleType) -> Writer:
    return Writer(
        module.__name__.rpartition(".")[2],
        tuple(module.VARIANTS),
        getattr(module, "NAMED_APART", ()),
        frozenset(getattr(module, "WITHOUT_SPLITS", ())),
        getattr(module, "KIND", "instances"),
        getattr(module, "KINDS", {}),
        getattr(module, "LIKELY", ()),
        getattr(module, "HOLES", ()),
        getattr(module, "WITHOUT_EMPTY", frozenset()),
        getattr(module, "WARNINGS", {}),
        module.write,
        getattr(module, "expect", None),
    )


def _writers() -> tuple[Writer, ...]:
    modules = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]
    return tuple(_writer(module) for module in modules if hasattr(module, "VARIANTS"))


WRITERS = _writers()
