"""Job: all settings of a training run. It is validated once, frozen, and saved as `job.toml` in the run folder.

Each field has a flat name that is unique across all sections. The form, the flags, the recipes and `Problem.field` use
it. In each section, the field that selects its subject is called `name`, and its flat name is that of the section:
`optimizer` is `job.optimizer.name`.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import tomli_w
from msgspec import Meta

from engine.contract.job_fields import ABOUT, Field, Trait, create_value_problem, describe
from engine.contract.problems import Problem
from engine.system import paths
from engine.system.files import read_file

JOB_VERSION: Final = 1

TIMM = "timm:"
"""Prefix for the names of timm models."""

AUTO_STRATEGY: Final = "auto"
"""Value of `strategy` that leaves the choice to Footplate."""


def resolve_strategy(strategy: str, devices: Collection[str]) -> str:
    """Return the id of the strategy for a job that names `strategy`, which may be automatic, and trains on `devices`.

    The automatic choice for several devices is DistributedDataParallel, which can train every model.
    """
    if strategy != AUTO_STRATEGY:
        return strategy
    return "ddp" if len(devices) > 1 else "single"


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Group of related fields. It is an attribute of `Job` and a table in `job.toml`."""


class DataSection(Section, frozen=True):
    """Dataset, its split, the geometry of samples, and loading."""

    dataset: str = ""
    format: str = ""
    fold: str = ""
    val_fraction: Annotated[float, Meta(gt=0, lt=1)] = 0.2
    ignore_value: Annotated[int, Meta(ge=0, le=0xFFFFFF)] | None = None
    image_size: Annotated[int, Meta(ge=8, le=4096)] | None = None
    progressive_from: Annotated[int, Meta(ge=8, le=4096)] | None = None
    multi_scale: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    val_crop: Annotated[float, Meta(gt=0, le=1)] = 1.0
    oversample: bool = False
    points: Annotated[int, Meta(ge=64, le=1_000_000)] = 2048
    picture_cache: Literal["auto", "memory", "disk", "off"] = "auto"
    loader_workers: Annotated[int, Meta(ge=0, le=256)] = 2


class AugmentationSection(Section, frozen=True):
    """Random changes to training samples, such as crops and color changes."""

    name: Literal["none", "light", "medium", "strong", "own"] = "none"
    transforms: tuple[str, ...] = ()
    mirror: Literal["auto", "on", "off"] = "auto"
    mixup: Annotated[float, Meta(ge=0, le=100)] = 0.0
    cutmix: Annotated[float, Meta(ge=0, le=100)] = 0.0


class ModelSection(Section, frozen=True):
    """Model, its initial weights, and regularization inside the model."""

    name: str = "resnet18"
    encoder: str = "resnet34"
    pretrained: bool = False
    weights_file: str = ""
    freeze_epochs: Annotated[int, Meta(ge=0, le=100_000)] = 0
    freeze_batchnorm: bool = False
    dropout: Annotated[float, Meta(ge=0, lt=1)] | None = None
    stochastic_depth: Annotated[float, Meta(ge=0, lt=1)] | None = None
    model_file_sha256: str = ""


class TrainingSection(Section, frozen=True):
    """Number of epochs, batches, loss and weight averaging."""

    epochs: Annotated[int, Meta(ge=1, le=100_000)] = 5
    batch_size: Annotated[int, Meta(ge=1, le=1_000_000)] = 32
    accumulation: Annotated[int, Meta(ge=1, le=4096)] = 1
    loss: Literal["cross_entropy", "bce", "focal", "dice", "cross_entropy_dice"] = "cross_entropy"
    class_weights: Literal["none", "balanced"] = "none"
    label_smoothing: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    clip_norm: Annotated[float, Meta(gt=0, le=1_000_000)] | None = None
    ema_decay: Annotated[float, Meta(gt=0, lt=1)] | None = None
    ema_ramp: Annotated[int, Meta(ge=0, le=1_000_000)] = 2000
    patience: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0


class OptimizerSection(Section, frozen=True):
    """Optimizer and its learning rates."""

    name: Literal["sgd", "adam", "adamw", "nadam", "radam", "rmsprop", "adagrad", "lamb"] = "sgd"
    learning_rate: Annotated[float, Meta(gt=0, le=100)] = 0.01
    momentum: Annotated[float, Meta(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Meta(ge=0, lt=1)] = 0.999
    nesterov: bool = False
    weight_decay: Annotated[float, Meta(ge=0, le=10)] = 0.0001
    decay_norms: bool = True
    layer_decay: Annotated[float, Meta(gt=0, le=1)] = 1.0
    head_rate: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    optimizer_kernel: Literal["fused", "foreach", "for_loop"] = "fused"


class ScheduleSection(Section, frozen=True):
    """Schedule of the learning rate over the run."""

    name: Literal["none", "step", "cosine", "linear", "poly", "onecycle"] = "cosine"
    milestones: tuple[int, ...] = ()
    final_rate: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    warmup_epochs: Annotated[float, Meta(ge=0, le=100_000)] = 0.0
    warmup_steps: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    warmup_start: Annotated[float, Meta(ge=0, le=1)] = 0.01


class PrecisionSection(Section, frozen=True):
    """Numeric precision, and settings that speed up the computation."""

    name: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    memory_format: Literal["auto", "contiguous", "channels_last"] = "auto"
    compile: Literal["auto", "on", "off"] = "auto"
    deterministic: bool = False
    cpu_threads: Annotated[int, Meta(ge=1, le=1024)] | None = None
    numa_binding: bool = True


class ParallelSection(Section, frozen=True):
    """Distribution over devices. Each strategy uses only some of these fields (see `StrategyEntry.fields`)."""

    strategy: str = "auto"
    devices: tuple[str, ...] = ("cpu",)
    replicas: Annotated[int, Meta(ge=2, le=1024)] = 2
    pipeline_schedule: Literal["gpipe", "1f1b", "interleaved_1f1b", "zb1p", "zbv"] = "gpipe"
    microbatches: Annotated[int, Meta(ge=1, le=4096)] | None = None
    stages_per_device: Annotated[int, Meta(ge=2, le=64)] | None = None
    split_points: tuple[str, ...] = ()
    balance: Literal["equal", "speed"] = "equal"
    bucket_mib: Annotated[float, Meta(gt=0, le=4096)] = 25.0
    gradient_compression: Literal["none", "fp16", "bf16"] = "none"
    static_graph: bool = False
    sync_batchnorm: bool = False
    shard_precision: Literal["fp32", "bf16"] = "fp32"
    cpu_offload: bool = False
    activation_checkpointing: bool = False


class CheckpointsSection(Section, frozen=True):
    """Checkpoints and predictions that a run saves, and the checkpoint that it starts from."""

    best_by: str = ""
    checkpoint_minutes: Annotated[float, Meta(ge=0, le=10_080)] = 5.0
    checkpoint_steps: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    keep_checkpoints: Annotated[int, Meta(ge=0, le=100_000)] = 1
    predictions: Annotated[int, Meta(ge=0, le=64)] = 8
    resume_from: str = ""


class FaultsSection(Section, frozen=True):
    """Waiting in the queue for devices, and the reaction to faults."""

    start: Literal["when_free", "at_once"] = "when_free"
    wait_for_others: bool = False
    restarts: Annotated[int, Meta(ge=0, le=1000)] = 3
    on_lost_device: Literal["wait", "fewer"] = "wait"
    on_not_finite: Literal["stop", "roll_back", "skip"] = "stop"


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings of a training run. `job_fields.ABOUT` describes each field."""

    version: Literal[1] = JOB_VERSION
    task: str = "classification"
    data: DataSection = DataSection()
    augmentation: AugmentationSection = AugmentationSection()
    model: ModelSection = ModelSection()
    training: TrainingSection = TrainingSection()
    optimizer: OptimizerSection = OptimizerSection()
    schedule: ScheduleSection = ScheduleSection()
    precision: PrecisionSection = PrecisionSection()
    parallel: ParallelSection = ParallelSection()
    checkpoints: CheckpointsSection = CheckpointsSection()
    faults: FaultsSection = FaultsSection()
    name: Annotated[str, Meta(max_length=120)] = ""
    recipe: str = ""
    options: dict[str, bool | int | float | str] = {}
    """Values of the options that a plug-in's task, model and strategy declare (see `engine.contract.options`)."""

    def __hash__(self) -> int:
        """Return a hash of the fields, which msgspec can't compute for the dictionary `options`."""
        return hash((self.task, *(getattr(self, name) for name in _SECTIONS), self.name, *sorted(self.options.items())))

    @classmethod
    def from_fields(cls, **fields: Any) -> Job:
        """Create a job from the values of fields by name, including `options`. Other fields have their defaults."""
        return _DEFAULT.with_fields(**fields)

    def with_fields(self, **fields: Any) -> Job:
        """Return a copy of the job with some fields changed, given by name. Raises KeyError for an unknown name."""
        changes: dict[str, dict[str, Any]] = {}
        for name, value in fields.items():
            section, attribute = _PATHS[name]
            changes.setdefault(section, {})[attribute] = value
        top = changes.pop("", {})
        sections = {name: msgspec.structs.replace(getattr(self, name), **changes[name]) for name in changes}
        return msgspec.structs.replace(self, **top, **sections)

    def value(self, name: str) -> Any:
        """Return the value of the job field `name`, or the plug-in options if `name` is "options".

        Raises KeyError for other names.
        """
        section, attribute = _PATHS[name]
        return getattr(getattr(self, section) if section else self, attribute)

    def values(self) -> dict[str, Any]:
        """Return the values of all job fields by name, in the order of the form, and the `options`."""
        return {name: self.value(name) for name in FIELDS} | {"options": dict(self.options)}

    @property
    def resolved_strategy(self) -> str:
        """Id of the strategy that trains the job, after resolving an automatic choice."""
        return resolve_strategy(self.parallel.strategy, self.parallel.devices)

    @property
    def unfreezes_backbone(self) -> bool:
        """True if a backbone that is frozen at first is trained later."""
        return 0 < self.model.freeze_epochs < self.training.epochs

    @property
    def model_is_file(self) -> bool:
        """True if the model is the path of a user's Python file rather than a name from the catalogue."""
        return self.model.name.endswith(".py")


_DEFAULT = Job()
_SECTIONS: dict[str, type[Section]] = {
    info.name: info.type
    for info in msgspec.structs.fields(Job)
    if isinstance(info.type, type) and issubclass(info.type, Section)
}


def _get_flat_name(section: str, attribute: str) -> str:
    """Return the name of a job field in the form.

    It is the name of the `section` for the attribute "name", and the name of the `attribute` for any other one.
    """
    return section if attribute == "name" and section else attribute


_STRUCTS: dict[str, type[msgspec.Struct]] = {"": Job, **_SECTIONS}
_INFO: dict[str, tuple[str, msgspec.structs.FieldInfo]] = {
    _get_flat_name(section, info.name): (section, info)
    for section, kind in _STRUCTS.items()
    for info in msgspec.structs.fields(kind)
    if not (section == "" and info.name in {"version", "options", *_SECTIONS})
}
_OPTIONS_TYPE = dict[str, bool | int | float | str]
_PATHS = {name: (section, info.name) for name, (section, info) in _INFO.items()} | {"options": ("", "options")}
"""Section and attribute of each job field, by its name. The section is "" for fields of `Job` itself."""

FIELDS: dict[str, Field] = {
    name: describe(name, info, about, section or "training")  # type: ignore[arg-type]
    for name, about in ABOUT.items()
    for section, info in [_INFO[name]]
}
"""All fields of `Job` by flat name, in the order of the form, except the version and the options."""


def fields_with_trait(trait: Trait) -> tuple[str, ...]:
    """Return the names of the job fields with a trait. The trait "resume", for example, marks what a resume may change."""
    return tuple(name for name, field in FIELDS.items() if trait in field.traits)


def field_path(name: str) -> str:
    """Return the path of a field in `Job` and in `job.toml`, such as "optimizer.name" for "optimizer"."""
    return ".".join(filter(None, _PATHS[name]))


def job_from_values(values: Mapping[str, Any]) -> tuple[Job | None, list[Problem]]:
    """Create a job from plain values by field name, as given by flags or the form.

    Returns the job and [], or None and all problems with single values. Combinations of values are not checked.
    """
    problems: list[Problem] = []
    accepted: dict[str, Any] = {}
    for name, value in values.items():
        if name not in FIELDS and name != "options":
            problems.append(_create_unknown_field_problem(name, FIELDS))
            continue
        try:
            accepted[name] = msgspec.convert(value, _get_type(name))
        except msgspec.ValidationError:
            if name == "options":
                message = "The options of a job are a table of single values."
                problems.append(Problem(name, message, "Write NAME = VALUE below [options]."))
            else:
                problems.append(create_value_problem(FIELDS[name], name, value))
            continue
        if isinstance(value, str) and not _is_unicode(value):  # the name of a file
            escaped = value.encode(errors="backslashreplace").decode()
            remedy = "Rename it, or make a symbolic link with a plain name to it."
            problems.append(Problem(name, f"{FIELDS[name].label}: the name {escaped} is not UTF-8.", remedy))
    return (None, problems) if problems else (Job.from_fields(**accepted), [])


def _get_type(name: str) -> Any:
    """Return the type annotation of the job field `name`, or that of the plug-in options if it is "options"."""
    if name == "options":
        return _OPTIONS_TYPE
    _section, info = _INFO[name]
    return info.type


def values_from_table(table: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Return the field values in a parsed `job.toml` by field name, and a problem for each entry that is not a field.

    The values are not validated; see `job_from_values`.
    """
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    version = table.get("version", JOB_VERSION)
    if version != JOB_VERSION:
        message = f"Footplate can't read job version {version!r}; it reads version {JOB_VERSION}."
        return {}, [Problem("version", message, f"Update Footplate, or set version = {JOB_VERSION}.")]
    sections: dict[str, dict[str, Any]] = {"": {}}  # "" for the fields outside sections
    for name, entry in table.items():
        if name not in _SECTIONS:
            sections[""][name] = entry
        elif isinstance(entry, dict):
            sections[name] = entry
        else:
            problems.append(Problem(name, f"“{name}” is a section of a job.", f"Write the table [{name}]."))
    sections[""].pop("version", None)
    for section, entries in sections.items():
        for attribute, value in entries.items():
            name = _get_flat_name(section, attribute)
            if _PATHS.get(name) == (section, attribute):
                values[name] = value
            elif name in _PATHS:
                problems.append(Problem(name, f"“{name}” is in the wrong section.", f"Write it as {field_path(name)}."))
            else:
                problems.append(_create_unknown_field_problem(name, _PATHS))
    return values, problems


def _create_unknown_field_problem(name: str, known: Iterable[str]) -> Problem:
    """Return a problem for a name that is not among the `known` fields, with the most similar one as its remedy."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean “{near[0]}”?" if near else "Remove it; `footplate train --help` lists all fields."
    return Problem(name, f"“{name}” is not a field of a job.", hint)


def _is_unicode(text: str) -> bool:
    """Return True if a text can be encoded as UTF-8, as TOML and JSON require.

    File names that are not valid in the file system's encoding contain surrogate escapes, which can't be encoded.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def load_job(path: Path) -> tuple[Job | None, list[Problem]]:
    """Read a `job.toml`. Returns the job and [], or None and all problems with the file."""
    values, problems = load_values(path, "job")
    job, wrong = job_from_values(values)
    problems += wrong
    return (None if problems else job), problems


def load_values(path: Path, field: str) -> tuple[dict[str, Any], list[Problem]]:
    """Return the field values in a `job.toml` by field name, and the problems in it.

    A file that can't be read has no values, and one problem, which is shown at `field`.
    """
    table, problem = read_toml(path, field)
    return ({}, [problem]) if problem else values_from_table(table)


def read_toml(path: Path, field: str) -> tuple[dict[str, Any], Problem | None]:
    """Return the content of a TOML file, or {} and a problem with `field` if it can't be read."""
    try:
        return tomllib.loads(read_file(path).decode()), None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        return {}, Problem(field, f"{path} can't be read: {reason}.", "Check the path and its permissions.")
    except (ValueError, RecursionError) as error:  # ValueError includes numbers with too many digits
        return {}, Problem(field, f"{path} is not valid TOML: {error}.", "Correct that line.")


def job_table(job: Job, names: Iterable[str] = FIELDS) -> dict[str, Any]:
    """Convert the job fields `names` and the options to nested plain values for TOML, without values of None."""
    table: dict[str, Any] = {"version": JOB_VERSION}
    for name in names:
        section, attribute = _PATHS[name]
        value = msgspec.to_builtins(job.value(name))
        if value is not None:
            entries = table.setdefault(section, {}) if section else table
            entries[attribute] = value
    if job.options:
        table["options"] = dict(job.options)
    return table


def job_to_toml(job: Job) -> str:
    """Convert a job to the text of a `job.toml`."""
    return tomli_w.dumps(job_table(job))


def save_job(job: Job, path: Path) -> None:
    """Write a `job.toml` atomically. Only its owner may read it. Raises OSError."""
    paths.write_atomically(path, job_to_toml(job).encode())


def changed_fields(job: Job) -> dict[str, Any]:
    """Return the values of the job fields that differ from their defaults by name, in the order of the form."""
    return {name: value for name in FIELDS if (value := job.value(name)) != FIELDS[name].default}
