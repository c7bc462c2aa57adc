"""Ways to read a folder whose evidence conflicts, each with a few samples to choose by. Torch-free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from engine.contract.catalogue import load_catalogue
from engine.contract.dataset import Example, Reading
from engine.contract.problems import errors
from engine.data.formats import registry
from engine.data.formats.shared.splitting import sample_count, select_samples
from engine.data.splits import RecognizedDataset, spread_evenly

MAX_READINGS = 4
EXAMPLES = 3


def candidate_readings(
    folder: str, *, val_fraction: float, seed: int, draw: Callable[[RecognizedDataset], tuple[Example, ...]]
) -> tuple[Reading, ...]:
    """Return the readings with evidence, the strongest first; `draw` returns the examples of a small dataset."""
    catalogue = load_catalogue()
    candidates: list[Reading] = []
    for each in registry.find_readings(folder):
        task = catalogue.task_of(each.kind) if each.kind not in ("", "files") else None
        if task is None or len(candidates) == MAX_READINGS:
            continue
        found = registry.read_as(each, task.annotations, val_fraction=val_fraction, seed=seed)
        examples = () if errors(found.problems) else draw(_few(found))
        detection = each.detection
        candidates.append(
            Reading(each.name, task.id, each.title, detection.evidence, detection.against, examples[:EXAMPLES])
        )
    return tuple(candidates)


def _few(found: RecognizedDataset) -> RecognizedDataset:
    """Return a dataset of a few training samples."""
    which = np.zeros(sample_count(found.train), bool)
    which[spread_evenly(len(which), EXAMPLES)] = True
    return replace(found, train=select_samples(found.train, which), val=None, test=None)
