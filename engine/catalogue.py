"""Program ``python -m engine.catalogue``, which generates the catalogue and writes or checks its file.

The flags are `--write`, `--check`, and `--plugins` for the catalogue's supplement, which describes installed plug-ins
and is stored in the user's cache. The catalogue is data (`resources/catalogue.json`), so that windows and commands can
list models, tasks and strategies without importing torch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from torch import nn

import resources
from engine.contract.catalogue import (
    DROPOUT_FIELDS,
    MODEL_FIELDS,
    Catalogue,
    Measure,
    ModelEntry,
    Supplement,
    command_if_missing,
    create_plugin_warning,
    load_builtin_catalogue,
    supplement_file,
)
from engine.contract.job import Job
from engine.contract.options import list_options
from engine.data.formats.registry import FORMATS, KINDS
from engine.metrics.registry import METRICS, find_plugin_metrics
from engine.models import encoders, timm_models
from engine.models.base import ModelInfo, TaskError
from engine.models.blocks import list_blocks
from engine.models.meta_device import build_on_meta, find_largest_single_value_size
from engine.models.model_surgery import get_heads
from engine.models.registry import MODELS
from engine.models.tensor_detector import LoadableDetector
from engine.parallel.split_points import CannotSplit
from engine.strategies import STRATEGIES
from engine.strategies.fsdp import find_tied_views
from engine.strategies.layer_split import find_layer_pairs
from engine.strategies.pipelining.model_split import find_split_points
from engine.system import paths
from engine.system.plugins import Registry
from engine.system.stdio import exit_now
from engine.tasks.base import Task
from engine.tasks.registry import TASKS

DESCRIBED_CLASSES = 10
"""Number of classes for describing a model from a library or plug-in in the catalogue.

It is used if the model's task doesn't set the number of classes.
"""
CATALOGUE_FILE = Path(resources.__path__[0]) / "catalogue.json"


def generate() -> Catalogue:
    """Return the catalogue of this version of Footplate, with the models of the installed torchvision."""
    return Catalogue(
        tasks=tuple(task.entry for task in TASKS.built_in.values()),
        models=tuple(describe(task, name) for task in TASKS.built_in.values() for name in _list_model_ids(task)),
        strategies=tuple(strategy.entry for strategy in STRATEGIES.built_in.values()),
        annotation_kinds=KINDS,
        encoders=encoders.list_names(),
        encoder_weights=encoders.list_imagenet_weights(),
        timm_tags=timm_models.list_tags(),
        timm_weights=timm_models.list_weights(),
    )


def _list_model_ids(task: Task) -> tuple[str, ...]:
    """Return the ids of a task's models. Models from libraries come last."""
    return (*task.list_models(), *(name for name, model in MODELS.built_in.items() if model.task == task.entry.id))


def build_supplement() -> Supplement:
    """Return the catalogue entries of installed plug-ins, as additions to the built-in catalogue.

    Plug-ins that can't be described are left out.
    """
    task_models = [
        model
        for name, task in TASKS.load_plugins().items()
        for model in _describe_plugin(TASKS, name, partial(_describe_models, task))
    ]
    models = [
        model
        for name in MODELS.load_plugins()
        for model in _describe_plugin(MODELS, name, partial(_describe_added_model, name))
    ]
    tasks = tuple(task.entry for task in TASKS.load_plugins().values())
    annotations: dict[str, tuple[str, ...]] = {}
    metrics: dict[str, tuple[Measure, ...]] = {}
    for task in TASKS.values():
        formats = (each for each in FORMATS.load_plugins().values() if task.entry.id in each.tasks)
        annotations[task.entry.id] = tuple(kind for each in formats for kind in each.kinds)
        added = find_plugin_metrics(task.entry.id, task.entry.metrics)
        metrics[task.entry.id] = tuple(metric.create_entry(name) for name, metric in added.items())
    strategies = tuple(strategy.entry for strategy in STRATEGIES.load_plugins().values())
    # Last, since loading plug-ins fills these lists.
    left_out = [each for registry in (TASKS, FORMATS, MODELS, METRICS, STRATEGIES) for each in registry.left_out]
    return Supplement(
        tasks=tasks,
        models=(*task_models, *models),
        strategies=strategies,
        formats=tuple(FORMATS.load_plugins()),
        annotations=annotations,
        metrics=metrics,
        problems=tuple(map(create_plugin_warning, left_out)),
    )


def _describe_plugin(
    registry: Registry[Any], name: str, describe: Callable[[], Sequence[ModelEntry]]
) -> Sequence[ModelEntry]:
    """Return the models that `describe` returns for the plug-in `name`.

    If it fails, return () and leave the plug-in out of the registry.
    """
    try:
        return describe()
    except Exception as error:  # third-party code
        message = str(error).strip().partition("\n")[0]
        registry.leave_out(name, f"{type(error).__name__}: {message}")
        return ()


def _describe_models(task: Task) -> Sequence[ModelEntry]:
    """Return the catalogue entries for all models of a task that comes from a plug-in.

    Raises ValueError if one of them has the name of a built-in model.
    """
    built_in = {model.id for model in load_builtin_catalogue().models}
    taken = built_in.intersection(task.list_models())
    if taken:
        raise ValueError(f"Footplate has a model “{min(taken)}”")
    return [describe(task, name) for name in task.list_models()]


def _describe_added_model(name: str) -> Sequence[ModelEntry]:
    """Return a list with the catalogue entry for a model from a plug-in.

    The model is built as it is for a job, since not every model can be built on the meta device. Raises ValueError if
    the model's task is unknown.
    """
    added = MODELS[name]
    if added.task not in TASKS:
        raise ValueError(f"there is no task “{added.task}”")
    task = TASKS[added.task]
    model_info = added.describe_model(task.entry.classes or DESCRIBED_CLASSES)
    model = task.build_model(Job.from_fields(task=added.task, model=name), model_info.classes, model_info.channels)
    entry = _create_entry(task, name, model_info, model, dropout_fields=())
    return [msgspec.structs.replace(entry, package=MODELS.packages[name], options=list_options(added.options))]


def describe(task: Task, name: str) -> ModelEntry:
    """Return the catalogue entry for a model.

    The model is built on the meta device, unless it comes from a library. If it needs an extra that is not installed,
    its entry is copied from the catalogue's file.
    """
    library_model = MODELS.built_in.get(name)  # None for a model of the task itself
    if library_model is not None and command_if_missing(library_model.extra):
        existing_entry = load_builtin_catalogue().model(name)
        if existing_entry is not None:
            return existing_entry
    model_info = task.describe_model(name) if library_model is None else library_model.describe_model(DESCRIBED_CLASSES)
    job = Job.from_fields(task=task.entry.id, model=name)
    build = partial(task.build_model, job, model_info.classes, model_info.channels)
    model = build_on_meta(build) if library_model is None else build().to("meta")
    fields = (field for field in DROPOUT_FIELDS if field in task.entry.fields)
    dropout_fields = [field for field in fields if _accepts_field(task, job, model_info, field)]
    return _create_entry(task, name, model_info, model, dropout_fields=dropout_fields)


def _create_entry(
    task: Task, name: str, model_info: ModelInfo, model: nn.Module, *, dropout_fields: Sequence[str]
) -> ModelEntry:
    """Return the catalogue entry for a model.

    `model` is the built model, on any device. `dropout_fields` lists the fields in `DROPOUT_FIELDS` that it supports.
    """
    points, unsplittable_reason = _find_split_points(model)
    smallest = model_info.min_image_size
    step = encoders.STRIDE if model_info.encoder else model_info.image_size_step
    if isinstance(model, LoadableDetector):  # its configuration has the step, and may require larger images
        smallest, step = max(smallest, model.accepted_sizes.smallest), model.accepted_sizes.step
    supported = [*dropout_fields, "head_rate"] if get_heads(model) else dropout_fields
    return ModelEntry(
        id=name,
        title=model_info.title,
        task=task.entry.id,
        family=model_info.family,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        image_size=model_info.image_size,
        min_image_size=smallest,
        image_size_step=step,
        possible_split_points=points,
        unsplittable_reason=unsplittable_reason,
        blocks=len(list_blocks(model)),
        tied=find_tied_views(model),
        tensor_parallel=bool(find_layer_pairs(model)),
        fields=tuple(field for field in MODEL_FIELDS if field in supported),
        batch_norm=any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()),
        lone_batch_norm=find_largest_single_value_size(
            model, model_info.channels, smallest=smallest, usual=model_info.image_size
        ),
        encoder=model_info.encoder,
        weights=model_info.weights,
        extra=model_info.extra,
        published=model_info.published,
        own_loss=model_info.own_loss,
    )


def _accepts_field(task: Task, job: Job, model_info: ModelInfo, field: str) -> bool:
    """Return True if the job's model can be built with a positive value in `field`, a dropout field of the job."""
    changed = job.with_fields(**{field: 0.5})
    try:
        build_on_meta(lambda: task.build_model(changed, model_info.classes, model_info.channels))
    except TaskError as refusal:
        if refusal.field == field:
            return False
        raise
    return True


def _find_split_points(model: nn.Module) -> tuple[tuple[str, ...], str]:
    """Return the names of a model's split points, and the reason if it can't be split, otherwise ""."""
    try:
        return tuple(point.node for point in find_split_points(model)), ""
    except CannotSplit as reason:
        return (), str(reason)


def encode(catalogue: Catalogue) -> bytes:
    """Return the catalogue as the JSON text of its file, indented so that diffs are readable.

    Large tables have one line per model.
    """
    tables = ("encoder_weights", "timm_tags", "timm_weights")
    without_tables = msgspec.to_builtins(msgspec.structs.replace(catalogue, **{table: {} for table in tables}))
    for table in tables:
        del without_tables[table]
    text = msgspec.json.format(msgspec.json.encode(without_tables), indent=1).removesuffix(b"\n}")
    for table in tables:
        lines = (msgspec.json.encode({name: entry})[1:-1] for name, entry in getattr(catalogue, table).items())
        text += b',\n "%b": {\n  %b\n }' % (table.encode(), b",\n  ".join(lines))
    return text + b"\n}\n"


def main(argv: list[str] | None = None) -> int:
    """Write or check the file that the flag in `argv` names. Returns 1 if a checked file is outdated, else 0."""
    parser = argparse.ArgumentParser(prog="python -m engine.catalogue", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help=f"write {CATALOGUE_FILE.name}")
    action.add_argument("--check", action="store_true", help="exit with 1 if the file is not current")
    action.add_argument("--plugins", action="store_true", help="write what the installed plug-ins add into the cache")
    arguments = parser.parse_args(argv)
    if arguments.plugins:
        file = supplement_file()
        if file is not None:
            paths.write_atomically(
                paths.make_private_folder(file.parent) / file.name, msgspec.json.encode(build_supplement())
            )
        return 0
    fresh = encode(generate())
    if arguments.write:
        CATALOGUE_FILE.write_bytes(fresh)
        return 0
    if not CATALOGUE_FILE.is_file() or CATALOGUE_FILE.read_bytes() != fresh:
        print(f"{CATALOGUE_FILE} is not current; run: python -m engine.catalogue --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    exit_now(main())
