"""Catalogue of tasks, models and strategies, as data.

``python -m engine.catalogue`` generates `resources/catalogue.json`, so that hundreds of models can be listed without
importing torch. CI checks that the file is current. When the engine first sees installed plug-ins, it writes their
additions to a `Supplement` in the user's cache (``python -m engine.catalogue --plugins``).
"""

from __future__ import annotations

import difflib
import re
from functools import lru_cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

import msgspec

from engine.contract.job import TIMM, Field, Job
from engine.contract.problems import Problem
from engine.contract.weights import TIMM_ENCODER, Weights
from engine.system import paths, plugins
from engine.system.files import read_file
from engine.system.plugins import install_command

DROPOUT_FIELDS = ("dropout", "stochastic_depth")
"""Job fields with probabilities for dropping units or layers in training."""
MODEL_FIELDS = (*DROPOUT_FIELDS, "head_rate")
"""Job fields that only some models use, except those about encoders and BatchNorm."""

DeviceKind = Literal["cuda", "cpu"]

PredictionKind = Literal["class", "labels", "pixels", "lines", "objects", "points", "raw"]
"""Kind of predictions that a task's models make.

These are a class or labels for an image, classes of its pixels, lines or objects in it, classes of points, or values
that only a user-defined task can interpret.
"""
AugmentationKind = Literal["images", "masks", "lines", "edges", "boxes"]
"""Kind of training targets that must be moved together with the images in an augmentation."""


class Measure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Validation metric. `id` is its key in the measures of `Validation` events."""

    id: str
    title: str
    higher_is_better: bool
    percent: bool = False

    def is_always_one(self, classes: int) -> bool:
        """Return True for a top-k accuracy whose k is at least the number of `classes`, so that it is always 1."""
        guesses = re.match(r"Top-(\d+)", self.title)
        return guesses is not None and 0 < classes <= int(guesses[1])


class AnnotationKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Kind of annotations in datasets.

    Attributes:
        title: Name in messages: "images with boxes".
        layout: Sentence that describes the layout of a folder with such annotations to users.
        sample: Singular noun for a sample.
        element: Plural noun for the parts of a sample that have classes.
    """

    title: str
    layout: str
    sample: str = "image"
    element: str = "pixels"


class DefaultModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Model, with its encoder, that a new job may start with.

    Attributes:
        encoder: Encoder that the model is built on, or "" if it needs none.
        gpu: True to offer the model only for GPUs, because it is too slow on a CPU.
    """

    model: str
    encoder: str = ""
    gpu: bool = False

    @property
    def values(self) -> dict[str, bool | str]:
        """Return the values of the job fields "model" and "encoder" that select this model."""
        return {"model": self.model, "encoder": self.encoder} if self.encoder else {"model": self.model}


class TaskEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Catalogue entry for a task.

    Attributes:
        annotations: Kinds of annotations that it can learn from, the preferred one first.
        metrics: Validation metrics. The first one decides which checkpoint is the best unless the job names another.
        defaults: Models for new jobs, best first. The last one is always available. Empty if `file` is True.
        fields: Job fields that apply to this task in addition to the fields that apply to all tasks.
        without: Job fields that apply to all other tasks but not to this one.
        models: Task whose models this one uses, or "" if it has its own models.
        file: True if the model's Python file defines what is learned, so that the metrics are unknown before it runs.
        classes: Number of classes that a dataset must have, or None for any number.
        losses: Values of the job's `loss` that the task offers, its default first. Empty if there is no choice.
        predicts: Kind of predictions. It decides how predictions are made, written, drawn and converted.
        augmentation: Kind of targets that augmentations transform together with images, or None if samples are not
            images.
        scores: Number of scores per pixel that its models return, or None for one score per class.
        hub_task: Name of the task on the Hugging Face Hub, or "" if the Hub doesn't have it.
    """

    id: str
    title: str
    annotations: tuple[str, ...]
    metrics: tuple[Measure, ...]
    defaults: tuple[DefaultModel, ...]
    fields: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    models: str = ""
    file: bool = False
    classes: int | None = None
    losses: tuple[str, ...] = ()
    options: tuple[Field, ...] = ()
    predicts: PredictionKind = "raw"
    augmentation: AugmentationKind | None = None
    scores: int | None = None
    hub_task: str = ""

    @property
    def model(self) -> str:
        """Id of the task's default model that is always available, or "" if there is none."""
        return self.defaults[-1].model if self.defaults else ""


ANY_SIZE = -1
"""Value of `ModelEntry.lone_batch_norm` that means all image sizes."""


class ModelEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Catalogue entry for a model.

    Attributes:
        image_size: Default side length of square images in pixels.
        min_image_size: Minimum side length in pixels.
        image_size_step: Number that the side length in pixels must be a multiple of.
        possible_split_points: Points at which a pipeline may split the model, in order.
        unsplittable_reason: Reason why the model has no split points.
        blocks: Number of repeated blocks, the units of activation checkpointing and sharding, or 0 for none.
        tied: Parameters that share memory with others.
        tensor_parallel: True if tensor parallelism can split some layers.
        encoder: True if the model is a decoder on top of the job's encoder.
        lone_batch_norm: Largest image size for which a BatchNorm layer gets only one value per channel and image.
            `ANY_SIZE` for every size, 0 for none.
        fields: Fields in `MODEL_FIELDS` that the model uses.
        weights: Pretrained weights. None for models without weights, for decoders, and for timm's models (see
            `weights_of`).
        package: Installed package that adds the model, or "" for a built-in model.
        extra: Extra of Footplate that the model needs, such as "transformers", or "" for none (see `command_if_missing`).
        published: Accuracy of the pretrained weights with its source, as in "COCO 46.7 AP, torchvision", or "" if it is
            unknown.
        own_loss: True if the model computes its own losses, so that the job's fields for the loss have no effect.
    """

    id: str
    title: str
    task: str
    family: str
    parameters: int
    image_size: int
    min_image_size: int
    image_size_step: int = 1
    possible_split_points: tuple[str, ...] = ()
    unsplittable_reason: str = ""
    blocks: int = 0
    tied: tuple[str, ...] = ()
    tensor_parallel: bool = False
    encoder: bool = False
    batch_norm: bool = False
    lone_batch_norm: int = 0
    fields: tuple[str, ...] = ()
    weights: Weights | None = None
    package: str = ""
    extra: str = ""
    published: str = ""
    own_loss: bool = False
    options: tuple[Field, ...] = ()

    @property
    def license(self) -> str:
        """Title of the license of the pretrained weights, or "" if it is unknown or there are no weights."""
        return self.weights.license_title if self.weights is not None and self.weights.license else ""


MeshDimension = Literal["replicate", "shard", "pipeline", "tensor"]
"""Way to divide work among the devices along one dimension of a run's mesh.

"replicate": copies of the model process parts of every batch. "shard": the same, but each device stores only a shard of
every parameter. "pipeline": each device holds some layers of the model. "tensor": each device computes a slice of every
layer.
"""
MESH_DIMENSIONS: tuple[MeshDimension, ...] = get_args(MeshDimension)


class StrategyEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Catalogue entry for a strategy, which divides the work among devices. The entry decides which jobs it can run.

    Attributes:
        mesh: Dimensions of the mesh of devices, the outer one first. Empty for one device. With two dimensions, the
            outer one has as many devices as the job has `replicas`.
        process_per_device: True to run one worker per device, False to run one worker for all devices.
        shards_optimizer: True if each replica stores the optimizer state for only a part of the parameters.
        is_recommended: True if advice, restarts and commands choose this strategy among those with the same mesh.
        fields: Job fields that have an effect only under strategies that list them.
    """

    id: str
    title: str
    summary: str
    mesh: tuple[MeshDimension, ...]
    device_kinds: tuple[DeviceKind, ...] = ("cuda", "cpu")
    process_per_device: bool = True
    shards_optimizer: bool = False
    is_recommended: bool = False
    fields: tuple[str, ...] = ()
    options: tuple[Field, ...] = ()

    @property
    def min_devices(self) -> int:
        """Smallest number of devices that the strategy can use: two along each dimension of the mesh."""
        return 2 ** len(self.mesh)

    @property
    def max_devices(self) -> int | None:
        """Largest number of devices that the strategy can use, or None for any number."""
        return None if self.mesh else 1

    @property
    def splits_batch(self) -> bool:
        """True if devices, or groups of devices, process different parts of every batch."""
        return "replicate" in self.mesh or "shard" in self.mesh

    @property
    def shards_parameters(self) -> bool:
        """True if each device stores a shard of every parameter."""
        return "shard" in self.mesh

    @property
    def splits_model(self) -> bool:
        """True if each device holds some layers, so that the model needs split points."""
        return "pipeline" in self.mesh

    @property
    def splits_layers(self) -> bool:
        """True if the devices in a group compute slices of each layer for the same images."""
        return "tensor" in self.mesh

    @property
    def has_replicas(self) -> bool:
        """True if the mesh has a dimension for replicas, whose length is the job's `replicas`."""
        return len(self.mesh) == 2

    @property
    def has_schedule(self) -> bool:
        """True if microbatches flow through the parts of the model according to a pipeline schedule."""
        return "pipeline_schedule" in self.fields

    @property
    def keeps_full_model(self) -> bool:
        """True if each worker holds the full model on one device, which `memory_format` and `compile` require."""
        return self.process_per_device and set(self.mesh) <= {"replicate"}


class Supplement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Additions to a catalogue from plug-ins.

    Attributes:
        formats: Ids of dataset formats.
        annotations: Kinds of annotations that tasks can also learn from, by task id.
        metrics: Additional validation metrics of tasks, by task id.
        problems: Warnings about plug-ins that are left out.
    """

    tasks: tuple[TaskEntry, ...] = ()
    models: tuple[ModelEntry, ...] = ()
    strategies: tuple[StrategyEntry, ...] = ()
    formats: tuple[str, ...] = ()
    annotations: dict[str, tuple[str, ...]] = {}
    metrics: dict[str, tuple[Measure, ...]] = {}
    problems: tuple[Problem, ...] = ()


class Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Catalogue of tasks, models with their weights, and strategies.

    Attributes:
        annotation_kinds: Kinds of annotations by id.
        timm_tags: Tags for the weights of each timm model, the default first, or "" for weights without a tag.
        timm_weights: Weights from timm by "NAME.TAG".
        problems: Warnings about plug-ins that are left out.
    """

    tasks: tuple[TaskEntry, ...]
    models: tuple[ModelEntry, ...]
    strategies: tuple[StrategyEntry, ...]
    annotation_kinds: dict[str, AnnotationKind] = {}
    encoders: tuple[str, ...] = ()
    encoder_weights: dict[str, Weights] = {}
    timm_tags: dict[str, tuple[str, ...]] = {}
    timm_weights: dict[str, Weights] = {}
    problems: tuple[Problem, ...] = ()

    def task_of(self, annotations: str) -> TaskEntry | None:
        """Return the task to propose for a folder with this kind of annotations, or None if no task learns from them."""
        return next((task for task in self.tasks if annotations in task.annotations), None)

    def task(self, name: str) -> TaskEntry | None:
        return next((entry for entry in self.tasks if entry.id == name), None)

    def sample_noun(self, task: str) -> str:
        """Return the singular noun for a sample of a task, such as "image" or "cloud"."""
        entry = self.task(task)
        kinds = () if entry is None or entry.file else entry.annotations  # a Python file defines what a sample is
        return next((self.annotation_kinds[kind].sample for kind in kinds if kind in self.annotation_kinds), "sample")

    def model(self, name: str) -> ModelEntry | None:
        return next((entry for entry in self.models if entry.id == name), None)

    def models_of(self, task: str) -> tuple[ModelEntry, ...]:
        """Return the models for a task, or all models for an unknown task."""
        entry = self.task(task)
        if entry is None:
            return self.models
        return tuple(model for model in self.models if model.task == (entry.models or entry.id))

    def strategy(self, name: str) -> StrategyEntry | None:
        return next((entry for entry in self.strategies if entry.id == name), None)

    def recommended_strategy(self, *mesh: MeshDimension) -> StrategyEntry:
        """Return the recommended strategy whose mesh has exactly the dimensions `mesh`, the outer one first.

        Without dimensions, this is the strategy for one device. Raises StopIteration if no strategy has this mesh.
        """
        return next(entry for entry in self.strategies if entry.mesh == mesh and entry.is_recommended)

    def options_of(self, task: str, model: str, strategy: str) -> tuple[Field, ...]:
        """Return the plug-in options that a job with this task, model and strategy has.

        If two of them declare an option with the same name, the task precedes the model, and the model the strategy.
        """
        entries = (self.strategy(strategy), self.model(model), self.task(task))  # later ones replace earlier ones
        fields = {field.name: field for entry in entries if entry is not None for field in entry.options}
        return tuple(fields.values())

    def options(self) -> list[tuple[str, Field]]:
        """Return the options of all plug-ins, each with the title of the task, model or strategy that declares it."""
        entries: list[TaskEntry | ModelEntry | StrategyEntry] = [*self.tasks, *self.models, *self.strategies]
        return [(entry.title, field) for entry in entries for field in entry.options]

    def with_plugins(self, added: Supplement) -> Catalogue:
        """Return a copy of this catalogue that includes the entries of plug-ins in `added`."""
        tasks = [
            msgspec.structs.replace(
                task,
                annotations=task.annotations + added.annotations.get(task.id, ()),
                metrics=task.metrics + added.metrics.get(task.id, ()),
            )
            for task in (*self.tasks, *added.tasks)
        ]
        return msgspec.structs.replace(
            self,
            tasks=tuple(tasks),
            models=self.models + added.models,
            strategies=self.strategies + added.strategies,
            problems=added.problems,
        )


EXTRA_MODULES = {"transformers": "transformers"}
"""Module whose presence shows that an extra of Footplate is installed, by the name of the extra."""


def command_if_missing(extra: str) -> str:
    """Return the command that installs an extra of Footplate, or "" if it is installed or `extra` is "".

    This does not import the extra.
    """
    if not extra or find_spec(EXTRA_MODULES[extra]) is not None:
        return ""
    return install_command(extra)


def predictions_of(task: str) -> PredictionKind:
    """Return the kind of predictions that models for the task with this id make, or "raw" for an unknown task."""
    entry = load_catalogue().task(task)
    return entry.predicts if entry is not None else "raw"


@lru_cache(maxsize=1)
def load_catalogue() -> Catalogue:
    """Return the catalogue of tasks, models and strategies, with those of installed plug-ins if these were scanned."""
    added = load_supplement()
    return load_builtin_catalogue() if added is None else load_builtin_catalogue().with_plugins(added)


def load_builtin_catalogue() -> Catalogue:
    """Return the catalogue of built-in tasks, models and strategies, without plug-ins."""
    return msgspec.json.decode(files("resources").joinpath("catalogue.json").read_bytes(), type=Catalogue)


_FIELD_OF_PLUGIN_GROUP: dict[plugins.Group, str] = {
    "footplate.tasks": "task",
    "footplate.formats": "dataset",
    "footplate.models": "model",
    "footplate.metrics": "best_by",
    "footplate.strategies": "strategy",
}
"""Job field that a problem with a plug-in refers to, for each group of plug-ins."""


def create_plugin_warning(plugin: plugins.UnusablePlugin) -> Problem:
    """Return a warning about a plug-in that can't be used."""
    return Problem(
        _FIELD_OF_PLUGIN_GROUP[plugin.group], str(plugin), f"Correct, update or uninstall {plugin.package}.", "warning"
    )


def supplement_file() -> Path | None:
    """Return the file that caches the catalogue entries of the installed plug-ins, or None if none are installed.

    The file's name depends on the installed versions, so that another file is used after an update.
    """
    fingerprint = plugins.fingerprint()
    return paths.cache_folder() / "plugins" / f"{fingerprint}.json" if fingerprint else None


def load_supplement() -> Supplement | None:
    """Return the additions from installed plug-ins, or None if there are none or they have not been scanned."""
    file = supplement_file()
    try:
        return msgspec.json.decode(read_file(file), type=Supplement) if file is not None else None
    except (OSError, msgspec.DecodeError):
        return None


def weights_of(job: Job, catalogue: Catalogue) -> Weights | None:
    """Return the source of the pretrained weights for a job's model or its encoder, or None if none are known."""
    if job.model.name.startswith(TIMM):
        return timm_weights(job.model.name.removeprefix(TIMM), catalogue)
    model = catalogue.model(job.model.name)
    if model is None:
        return None
    if not model.encoder:
        return model.weights
    if job.model.encoder.startswith(TIMM_ENCODER):
        return timm_weights(job.model.encoder.removeprefix(TIMM_ENCODER), catalogue)
    return catalogue.encoder_weights.get(job.model.encoder)


def timm_weights(name: str, catalogue: Catalogue) -> Weights | None:
    """Return the source of the weights for a timm model, or None if none are known.

    A name such as "resnet50" means the default weights, and "resnet50.a2_in1k" those with this tag.
    """
    tags = catalogue.timm_tags.get(name)
    return catalogue.timm_weights.get(f"{name}.{tags[0]}" if tags else name)


def suggest_name(name: str, known: list[str]) -> str:
    """Return advice for an unknown `name`. It suggests the most similar of the `known` names, or lists some of them."""
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"Did you mean “{near[0]}”?"
    examples = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
    return f"Available: {examples}."
