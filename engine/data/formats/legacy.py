"""Formats behind the interface of before, until each has become a module with a `FORMAT`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.data.formats.edges import recognise_edges
from engine.data.formats.format import Confidence, Detection, Format
from engine.data.formats.instancefolder import recognise_instances
from engine.data.formats.maskfolder import recognise_masks
from engine.data.formats.tree import Tree


@dataclass(frozen=True)
class Legacy(Format):
    recognise: Callable[..., Any] = recognise_edges


def _make(id: str, kind: str, recognise: Callable[..., Any], confidence: Confidence = Confidence.LIKELY) -> Legacy:
    def detect(tree: Tree) -> Sequence[Detection]:
        found = recognise(tree.root, tree.folders(), 0.2, 0)
        return [] if found is None else [Detection((kind,), confidence, (f"{kind} found",))]

    return Legacy(id, id, (kind,), "", detect, lambda *_: None, recognise=recognise)  # type: ignore[arg-type,return-value]


FORMATS = (
    _make("edges", "edges", recognise_edges),
    _make("old_instances", "instances", recognise_instances),
    _make("masks", "masks", recognise_masks),
)
