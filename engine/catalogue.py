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
from engine.contract.catalogue import DROPPED, OF_MODELS, Catalogue, ModelEntry
from engine.contract.job import Job
from engine.models import segmentation_models, timm_models
from engine.models.base import ModelInfo, TaskError
from engine.models.blocks import blocks
from engine.models.meta_device import on_meta
from engine.models.model_surgery import heads_of
from engine.parallel.cut import CannotCut
from engine.strategies import STRATEGIES
from engine.strategies.fsdp import tied_views
from engine.strategies.pipelining.model_split import cut_places
from engine.tasks import TASKS, Task

CATALOGUE_FILE = Path(resources.__path__[0]) / "catalogue.json"


def generate() -> Catalogue:
    """The catalogue of this Footplate with the torchvision that is installed."""
    return Catalogue(
        tasks=tuple(task.entry for task in TASKS.values()),
        models=tuple(describe(task, name) for task in TASKS.values() for name in task.model_names()),
        strategies=tuple(strategy.entry for strategy in STRATEGIES.values()),
        encoders=segmentation_models.encoders(),
        encoder_weights=segmentation_models.encoder_weights(),
        timm_tags=timm_models.tags(),
        timm_weights=timm_models.weights(),
    )


def describe(task: Task, name: str) -> ModelEntry:
    """One model, built without memory."""
    model_info = task.model_info(name)
    job = Job(task=task.entry.id, model=name)
    model = on_meta(lambda: task.build_model(job, model_info.classes, model_info.channels))
    places, uncuttable = _cuts(model)
    has = {field: field in task.entry.fields and _takes(task, job, model_info, field) for field in DROPPED}
    has["head_rate"] = bool(heads_of(model))
    return ModelEntry(
        id=name,
        title=model_info.title,
        task=task.entry.id,
        family=model_info.family,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        image_size=model_info.image_size,
        min_image_size=model_info.min_image_size,
        cut_places=places,
        uncuttable=uncuttable,
        blocks=len(blocks(model)),
        tied=tied_views(model),
        fields=tuple(field for field in OF_MODELS if has[field]),
        batch_norm=any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()),
        encoder=model_info.encoder,
        weights=model_info.weights,
    )


def _takes(task: Task, job: Job, model_info: ModelInfo, field: str) -> bool:
    """Whether the job's model can be built with a share in `field`."""
    wanted = msgspec.structs.replace(job, **{field: 0.5})
    try:
        on_meta(lambda: task.build_model(wanted, model_info.classes, model_info.channels))
    except TaskError as refusal:
        if refusal.field == field:
            return False
        raise
    return True


def _cuts(model: nn.Module) -> tuple[tuple[str, ...], str]:
    try:
        return tuple(place.node for place in cut_places(model)), ""
    except CannotCut as reason:
        return (), str(reason)


def encode(catalogue: Catalogue) -> bytes:
    """The file's content, in lines that a diff can show; what there is of for thousands of models has a line for each."""
    tables = ("encoder_weights", "timm_tags", "timm_weights")
    rest = msgspec.to_builtins(msgspec.structs.replace(catalogue, encoder_weights={}, timm_tags={}, timm_weights={}))
    text = msgspec.json.format(msgspec.json.encode({name: rest[name] for name in rest if name not in tables}), indent=1)
    for table in tables:
        lines = (msgspec.json.encode({name: entry})[1:-1] for name, entry in getattr(catalogue, table).items())
        text = text.removesuffix(b"\n}") + b',\n "' + table.encode() + b'": {\n  ' + b",\n  ".join(lines) + b"\n }\n}"
    return text + b"\n"


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
