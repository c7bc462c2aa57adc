"""Writers of the dataset formats that Footplate reads. All write the same ground truth, so results can be compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, NamedTuple

from tests.support.dataset_formats.truth import TrueImage, Truth


class Writer(NamedTuple):
    """Writer of one dataset format.

    Attributes:
        name: Name of its module, which is the id of the format.
        variants: Names of the layouts that it can write.
        named_apart: Names of more layouts, which store the class names in a separate file.
        without_splits: Layouts without a validation or test split.
        kind: Most detailed kind of annotations that its layouts store.
        kinds: Most detailed kind for each layout that differs from `kind`.
        likely: Layouts that are recognized by their names alone.
        holes: Layouts whose objects have fewer pixels than in the ground truth.
        without_empty: Layouts that can't tell images without objects from images that nobody annotated.
        warnings: Key phrase of the expected warning, for layouts that cause one when they are read.
        write: Function that writes a ground truth to a folder in one of the layouts.
        expect: Function that returns the annotation to expect for an image and a kind of annotations, or None for formats
            that can represent the ground truth exactly.
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
