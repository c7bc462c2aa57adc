"""Generates the catalogue: ``python -m engine.catalogue --write`` or ``--check``.

The catalogue is data (`resources/catalogue.json`), so that windows and commands can list models, tasks and
strategies without importing torch.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec
from torch import nn

import resources
from engine.contract.catalogue import Catalogue, ModelEntry
from engine.contract.cut import CannotCut
from engine.contract.job import Job
from engine.strategies import STRATEGIES
from engine.strategies.blocks import blocks
from engine.strategies.cut import cut_places
from engine.strategies.fsdp import tied_views
from engine.tasks import TASKS, models, torchvision_models
from engine.tasks.meta import on_meta
from engine.tasks.weights import cache_path

CATALOGUE_FILE = Path(resources.__path__[0]) / "catalogue.json"
CLASSES = 1000
"""Models are described as torchvision ships them: for ImageNet's classes and colour pictures."""


def generate() -> Catalogue:
    """The catalogue of this Footplate with the torchvision that is installed."""
    return Catalogue(
        tasks=tuple(task.entry for task in TASKS.values()),
        models=tuple(describe(name) for name in models.names()),
        strategies=tuple(strategy.entry for strategy in STRATEGIES.values()),
    )


def describe(name: str) -> ModelEntry:
    """One model of classification, built without memory."""
    title, family = models.title_and_family(name)
    size = models.default_image_size(name)
    digits = name == models.MNIST_CNN
    known = () if digits else torchvision_models.weights(name)
    classes, channels = (10, 1) if digits else (CLASSES, 3)
    model = on_meta(lambda: models.build(Job(model=name), classes, channels, size))
    places, uncuttable = _cuts(model)
    return ModelEntry(
        id=name,
        title=title,
        task="classification",
        family=family,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        image_size=size,
        min_image_size=models.min_image_size(name),
        cut_places=places,
        uncuttable=uncuttable,
        blocks=len(blocks(model)),
        tied=tied_views(model),
        batch_norm=any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()),
        weights=tuple(each.name for each in known),
        weights_file=cache_path(known[0]).name if known else "",
    )


def _cuts(model: nn.Module) -> tuple[tuple[str, ...], str]:
    try:
        return tuple(place.node for place in cut_places(model)), ""
    except CannotCut as reason:
        return (), str(reason)


def encode(catalogue: Catalogue) -> bytes:
    """The file's content, in lines that a diff can show."""
    return msgspec.json.format(msgspec.json.encode(catalogue), indent=1) + b"\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.catalogue", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help=f"write {CATALOGUE_FILE.name}")
    action.add_argument("--check", action="store_true", help="exit with 1 if the file is not current")
    arguments = parser.parse_args(argv)
    fresh = encode(generate())
    if arguments.write:
        CATALOGUE_FILE.write_bytes(fresh)
        return 0
    if not CATALOGUE_FILE.is_file() or CATALOGUE_FILE.read_bytes() != fresh:
        print(f"{CATALOGUE_FILE} is not current; run: python -m engine.catalogue --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
