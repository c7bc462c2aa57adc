"""Descriptions of the fields of `Job` for the form, the flags and the checks: labels, help, traits and needs.

Traits (`Trait`) classify the fields, and needs (`Need`) are conditions for a field to have an effect.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import msgspec
from msgspec import Meta

from engine.contract.problems import Problem

Group = Literal[
    "main", "data", "augmentation", "model", "training", "optimizer", "schedule", "precision", "parallel",
    "checkpoints", "faults",
]  # fmt: skip
"""Group of fields in the form and in the command-line help. The "main" group is always visible."""

Trait = Literal["main", "resume", "recipe", "resolved", "report", "order", "speed", "memory"]
"""Trait of a field.

- main: belongs to the group that is always visible.
- resume: may change when a run resumes. Data, model, seed, optimizer and global batch size may not, since they would
  make it a different training run, for which a run can be forked.
- recipe: may be set by a recipe, because it describes how to train, not on which data or machine.
- resolved: may be determined only after the dataset was opened.
- report, order, speed, memory: affects the report on the dataset folder, the order of samples, the choice of the
  fastest settings, or the memory needed for a microbatch.
"""


class Need(NamedTuple):
    """Condition on other job fields for a field to have an effect.

    It holds if one of the fields `fields` has one of `values`. Without `values`, it holds if one of the fields isn't
    empty, 0 or off.
    """

    fields: tuple[str, ...]
    values: tuple[Any, ...] = ()

    def is_met(self, value: Callable[[str], Any]) -> bool:
        """Return True if the condition holds. `value` returns the value of a job field, given its name."""
        current = [value(name) for name in self.fields]
        return any(each in self.values for each in current) if self.values else any(current)


class About(NamedTuple):
    """Description of a job field. The field has an effect only if all of its `needs` are met."""

    label: str
    help: str
    traits: frozenset[Trait] = frozenset()
    needs: tuple[Need, ...] = ()


def _about(label: str, traits: list[Trait], help_text: str, *needs: Need) -> About:
    """Create the description of a job field.

    `label` is its name in the form, and `help_text` its help for users. The field has an effect only if all `needs` are
    met. For `traits`, see `Trait`.
    """
    return About(label, help_text, frozenset(traits), needs)


_ADAM_FAMILY = ("adam", "adamw", "nadam", "radam", "lamb")

# fmt: off
ABOUT: dict[str, About] = {
    "task": _about("Task", ["main", "report"],
        "What the model learns to predict."),
    # [data]
    "dataset": _about("Dataset folder", ["main", "report"],
        "The folder that holds the images."),
    "format": _about("Dataset format", ["report"],
        "How the folder's annotations are read. Recognized from its files unless you choose; `footplate inspect` lists "
        "the choices."),
    "fold": _about("Fold", ["report"],
        "For cross-validation: 2/5 holds out the second of five parts of the training images, whatever split the folder "
        "has. Each image is in one of the parts. Empty for the folder's own validation split or a random one."),
    "val_fraction": _about("Validation share", ["report"],
        "Fraction of the images held out for validation if the folder has no split."),
    "ignore_value": _about("Ignored mask value", ["report"],
        "Mask pixels of this value belong to no class and are left out of the loss and the metrics. Empty for the "
        "folder's own value, or 255."),
    "image_size": _about("Image size", ["recipe", "speed", "memory"],
        "Side length, in pixels, of the square images given to the model; empty for the model's default."),
    "progressive_from": _about("Image size at first", ["recipe"],
        "Side length in the first epochs, which grows to the image size over the first two thirds of the run; empty for "
        "one size throughout."),
    "multi_scale": _about("Multi-scale", ["recipe", "memory"],
        "Resizes each training batch to a random size, which differs from the image size by at most this fraction and is "
        "large enough for the model; 0 for one size, 0.25 is typical."),
    "val_crop": _about("Validation crop", ["recipe"],
        "Fraction of a validation image's short side that the crop keeps; 0.875 is typical for ImageNet weights."),
    "oversample": _about("Oversample rare classes", ["recipe", "order"],
        "Repeats images of rare classes within an epoch, so that all classes occur equally often."),
    "points": _about("Points", ["recipe"],
        "Number of points per sample, drawn anew in every epoch."),
    "picture_cache": _about("Decoded images", ["resume"],
        "Where decoded images are kept: in memory, in a disk cache that all runs share, or nowhere."),
    "loader_workers": _about("Loader workers", ["resume"],
        "Threads that read and decode images, per worker process."),
    # [augmentation]
    "augmentation": _about("Augmentation", ["recipe"],
        "Random changes to training images along with their masks and boxes. light crops and mirrors; medium and strong "
        "depend on the task; own applies the transforms listed below."),
    "transforms": _about("Transforms", ["recipe"],
        "Transforms of a custom augmentation, such as resized_crop:0.35:1, flip, rotate:10, color:0.2, trivial, "
        "erase:0.25. Geometric transforms come first, then policies, color, blur and erasing.",
        Need(("augmentation",), ("own",))),
    "mirror": _about("Mirror images", ["recipe"],
        "Whether an image keeps its meaning when mirrored. Auto: yes, except for idx files and for classes whose names "
        "are all digits or single letters.",
        Need(("augmentation",), ("light", "medium", "strong", "own"))),
    "mixup": _about("Mixup", ["recipe"],
        "Blends each image with another by a weight drawn from Beta(a, a), where a is this value; 0 for none, 0.2 is "
        "typical."),
    "cutmix": _about("CutMix", ["recipe"],
        "Pastes a patch of another image into each, its area drawn from Beta(a, a), where a is this value; 0 for none, "
        "1 is typical."),
    # [model]
    "model": _about("Model", ["main", "speed", "memory"],
        "A model from the catalogue, or the path to a Python file that defines build_model(num_classes)."),
    "encoder": _about("Encoder", ["main"],
        "The backbone, by its name in segmentation_models_pytorch or, with the prefix tu-, in timm."),
    "pretrained": _about("Pretrained weights", ["main", "recipe", "resolved"],
        "Start from weights trained on ImageNet."),
    "weights_file": _about("Weights file", ["resolved"],
        "A weights file to start from instead of pretrained weights."),
    "freeze_epochs": _about("Freeze backbone for", ["recipe", "memory"],
        "Number of epochs at the start in which only the head is trained: 0 for none, the number of epochs for the "
        "whole run."),
    "freeze_batchnorm": _about("Freeze BatchNorm", ["recipe"],
        "Keeps BatchNorm's statistics as they are in the initial weights; for small batches."),
    "dropout": _about("Dropout", ["recipe"],
        "Dropout probability of the model's dropout layers; empty for the model's default."),
    "stochastic_depth": _about("Stochastic depth", ["recipe"],
        "Probability that the last block is skipped in training, if the model has stochastic depth; empty for the "
        "model's default."),
    "model_file_sha256": _about("Trusted model file", ["main", "resume", "speed", "memory"],
        "SHA-256 of the model file that you have allowed to run."),
    # [training]
    "epochs": _about("Epochs", ["main", "resume", "recipe"],
        "Passes over the training set."),
    "batch_size": _about("Batch size", ["main", "recipe", "order", "speed", "memory"],
        "Images per optimizer step across all devices; every strategy divides it among them."),
    "accumulation": _about("Gradient accumulation", ["resume", "recipe", "resolved", "speed"],
        "Number of parts in which each batch is processed, one after another, before one optimizer step."),
    "loss": _about("Loss", ["recipe"],
        "For images: cross entropy, or binary cross entropy per class. For pixels: cross entropy; focal, which "
        "down-weights easy pixels; Dice, based on the overlap of each class; or the mean of cross entropy and Dice."),
    "class_weights": _about("Class weights", ["recipe"],
        "Balanced: the rarer a class is in the training data, the more it weighs in the loss.",
        Need(("loss",), ("cross_entropy", "bce", "focal", "cross_entropy_dice"))),
    "label_smoothing": _about("Label smoothing", ["recipe"],
        "Fraction of each target spread evenly over all classes; 0 for none."),
    "clip_norm": _about("Clip gradients", ["recipe"],
        "Maximum global norm of the gradients; larger ones are scaled down. Empty for no limit."),
    "ema_decay": _about("Weight average", ["recipe"],
        "Decay per step of an exponential moving average of the weights. The average is validated and saved as best. "
        "Empty for none."),
    "ema_ramp": _about("Average ramp", ["recipe"],
        "Time constant, in steps, with which the decay of the weight average rises, so that the initial weights do not "
        "dominate the average of a short run; 0 for the full decay at once.",
        Need(("ema_decay",))),
    "patience": _about("Stop early after", ["resume", "recipe"],
        "Ends the run after this many epochs without improvement in the metric that decides which checkpoint is best. "
        "Empty to train all epochs."),
    "seed": _about("Seed", ["report", "order"],
        "Fixes the initial weights, the order of the data and the augmentation."),
    # [optimizer]
    "optimizer": _about("Optimizer", ["recipe"],
        "An optimizer of PyTorch, or timm's LAMB."),
    "learning_rate": _about("Learning rate", ["main", "recipe"],
        "Peak learning rate of the schedule."),
    "momentum": _about("Momentum", ["recipe"],
        "Momentum of SGD and RMSprop; beta1 of the Adam family. OneCycle cycles it from 0.95 to 0.85 and back.",
        Need(("optimizer",), ("sgd", "rmsprop", *_ADAM_FAMILY))),
    "beta2": _about("Second beta", ["recipe"],
        "Decay of the moving average of squared gradients: beta2 of the Adam family, alpha of RMSprop.",
        Need(("optimizer",), ("rmsprop", *_ADAM_FAMILY))),
    "nesterov": _about("Nesterov momentum", ["recipe"],
        "Uses Nesterov momentum in SGD.",
        Need(("optimizer",), ("sgd",)),
        Need(("momentum",))),
    "weight_decay": _about("Weight decay", ["recipe"],
        "L2 penalty (SGD, Adam) or decoupled decay (AdamW)."),
    "decay_norms": _about("Decay norms and biases", ["recipe"],
        "Also applies weight decay to normalization layers, biases and tokens.",
        Need(("weight_decay",))),
    "layer_decay": _about("Layer decay", ["recipe"],
        "Factor by which the learning rate shrinks per layer, from the head down to the input; 1 for one rate "
        "throughout. 0.75 is typical for transformers, 0.9 for convolutional networks."),
    "head_rate": _about("Head rate", ["recipe"],
        "Multiplies the learning rate of the head; 1 for the same rate as the backbone."),
    "optimizer_kernel": _about("Optimizer kernel", ["recipe"],
        "A fused kernel, one call per operation for all parameters, or a loop over the parameters."),
    # [schedule]
    "schedule": _about("Schedule", ["recipe"],
        "How the learning rate changes over the run."),
    "milestones": _about("Steps down after", ["recipe"],
        "Epochs after which the step schedule divides the learning rate by 10; empty for each third of the run.",
        Need(("schedule",), ("step",))),
    "final_rate": _about("Final rate", ["recipe"],
        "Final learning rate of the cosine, linear and polynomial schedules, as a fraction of the peak.",
        Need(("schedule",), ("cosine", "linear", "poly"))),
    "warmup_epochs": _about("Warm-up epochs", ["recipe"],
        "Length of the linear learning-rate warm-up in epochs, possibly fractional; 0 for none.",
        Need(("schedule",), ("none", "step", "cosine", "linear", "poly"))),
    "warmup_steps": _about("Warm-up steps", ["recipe"],
        "Length of the warm-up in optimizer steps; if both are set, the longer one applies.",
        Need(("schedule",), ("none", "step", "cosine", "linear", "poly"))),
    "warmup_start": _about("Warm-up from", ["recipe"],
        "Learning rate at the start of the warm-up, as a fraction of the peak.",
        Need(("warmup_epochs", "warmup_steps"))),
    # [precision]
    "precision": _about("Precision", ["resume", "recipe", "resolved", "speed"],
        "fp32, or autocast to bf16 or fp16 (fp16 with a loss scaler). Auto: bf16 on GPUs that have it, else fp32."),
    "memory_format": _about("Memory format", ["resume", "recipe", "resolved"],
        "Memory layout of images. Auto: whichever is faster in a short trial."),
    "compile": _about("Compile the model", ["resume", "recipe", "resolved"],
        "Uses torch.compile. Auto: on GPUs, if a short trial shows that it pays off within the run."),
    "deterministic": _about("Deterministic", ["recipe"],
        "Bit-identical results in every run on the same devices. Few models need it on the CPU. GPUs lose their fastest "
        "kernels, and a model with an operation that has no deterministic implementation fails."),
    "cpu_threads": _about("Threads on the CPU", ["resume"],
        "Compute threads per CPU worker; empty to divide the available cores among the workers."),
    "numa_binding": _about("Bind to NUMA nodes", ["resume"],
        "Keeps each worker on the CPUs near its GPU, if these are at least its share of all."),
    # [parallel]
    "strategy": _about("Strategy", ["main", "resume", "resolved", "speed", "memory"],
        "How the model and each batch are distributed over the devices. Auto: DistributedDataParallel on several devices."),
    "devices": _about("Devices", ["main", "resume"],
        "GPUs by UUID, or cpu. Repeat cpu for several CPU workers."),
    "replicas": _about("Replicas", ["resume", "speed"],
        "Copies of the model that train side by side, each on an equal share of the devices."),
    "pipeline_schedule": _about("Pipeline schedule", ["resume", "speed"],
        "GPipe, 1F1B, interleaved 1F1B, or the zero-bubble ZB1P and ZBV."),
    "microbatches": _about("Microbatches", ["resume", "speed"],
        "Number of parts into which a pipeline splits each batch; empty to choose automatically."),
    "stages_per_device": _about("Stages per device", ["resume", "speed"],
        "Number of stages on each device under interleaved 1F1B; empty for two.",
        Need(("pipeline_schedule",), ("interleaved_1f1b",))),
    "split_points": _about("Split points", ["resume", "resolved"],
        "The points where the model is split, in order; empty to choose by measurement."),
    "balance": _about("Shares of the batch", ["resume"],
        "Equal, or in proportion to each device's speed, measured before the first step."),
    "bucket_mib": _about("Bucket size (MiB)", ["resume"],
        "Gradients are all-reduced in buckets of this size during the backward pass."),
    "gradient_compression": _about("Gradient compression", ["resume"],
        "Precision of the gradients sent between devices."),
    "static_graph": _about("Static graph", ["resume"],
        "Promises that every step uses the same parameters, which lets DDP overlap more communication."),
    "sync_batchnorm": _about("SyncBatchNorm", ["resume"],
        "Computes BatchNorm statistics over the batch of all devices."),
    "shard_precision": _about("Shards computed in", ["resume"],
        "fp32 with autocast to the precision above, or bf16 throughout; gradients are reduced in fp32."),
    "cpu_offload": _about("Offload to CPU", ["resume"],
        "Keeps shards, gradients and optimizer state in main memory."),
    "activation_checkpointing": _about("Activation checkpointing", ["resume", "memory"],
        "Recomputes the activations of each block in the backward pass instead of keeping them."),
    # [checkpoints]
    "best_by": _about("Keep best by", [],
        "The validation metric that decides which checkpoint is best; empty for the task's first."),
    "checkpoint_minutes": _about("Checkpoint every (minutes)", ["resume"],
        "Saves a checkpoint during an epoch once the last one is this old; 0 to save only at the end of epochs."),
    "checkpoint_steps": _about("Checkpoint every (steps)", ["resume"],
        "Also saves a checkpoint each time this many optimizer steps have passed; 0 for none by steps."),
    "keep_checkpoints": _about("Older checkpoints kept", ["resume"],
        "Earlier checkpoints to keep besides last.pt and best.pt. With at least one, a damaged last.pt does not lose "
        "the run."),
    "predictions": _about("Predictions kept", ["resume"],
        "Number of validation images whose predictions are saved at every validation; 0 for none."),
    "resume_from": _about("Continue from", [],
        "A last.pt or an older checkpoint, saved under any strategy. Restores its weights, optimizer and position in "
        "the run."),
    # [faults]
    "start": _about("Start", ["resume"],
        "When its devices are free, queued behind Footplate's other runs; or at once, alongside them."),
    "wait_for_others": _about("Wait for others", ["resume"],
        "Also waits until no other user's process is on its GPUs.",
        Need(("start",), ("when_free",))),
    "restarts": _about("Restarts after a fault", ["resume"],
        "How many times in a row, without a new checkpoint in between, a run restarts from its last checkpoint after a "
        "worker dies or hangs; 0 for never."),
    "on_lost_device": _about("Lost machine or GPU", ["resume"],
        "Wait up to ten minutes for a machine that a restart can't reach, and end the run if a GPU is lost; or continue "
        "with fewer, dividing the same batch among the devices that are left.",
        Need(("restarts",))),
    "on_not_finite": _about("Loss not finite", ["resume"],
        "Stop; roll back to the last checkpoint and skip the images that led there; or skip only such steps, with a "
        "check before each update."),
    # The run
    "name": _about("Run name", ["resume"],
        "A name for the run."),
    "recipe": _about("Recipe", ["main"],
        "The recipe that set the fields; fields changed since are marked."),
}
"""Description of every job field by its name, in the order of the form."""
# fmt: on

_SCALARS: dict[Any, Literal["int", "float", "bool", "text"]] = {int: "int", float: "float", bool: "bool", str: "text"}


class Field(msgspec.Struct, frozen=True):
    """Field of a job, or option from a plug-in, as presented by the form and the command line."""

    name: str
    label: str
    help: str
    group: Group
    kind: Literal["text", "int", "float", "bool", "choice", "list", "ints"]
    default: Any
    optional: bool = False
    choices: tuple[str, ...] = ()
    minimum: int | float | None = None
    maximum: int | float | None = None
    limits: str = ""
    """Description of the valid range, such as "from 1 to 64" or "above 0 and below 1"."""
    needs: tuple[Need, ...] = ()
    traits: frozenset[Trait] = frozenset()

    @property
    def flag(self) -> str:
        """Command-line option for the field, such as ``--batch-size``."""
        return "--" + self.name.replace("_", "-")

    @property
    def back_to_default(self) -> str:
        """Instruction that restores the default value, without a full stop: "Turn it off", "Set it to 0.1"."""
        if isinstance(self.default, bool):
            return f"Turn it {'on' if self.default else 'off'}"
        if self.default in (None, "", ()):
            return "Leave it empty"
        return f"Set it to {self.default:g}" if self.kind == "float" else f"Set it to {self.default}"


def describe(name: str, info: msgspec.structs.FieldInfo, about: About, group: Group) -> Field:
    """Describe the field `name` by its label, help, traits and needs in `about`, and its type and default in `info`.

    `group` is its group in the form, unless it has the trait "main". Raises ValueError for a type that fields can't
    have.
    """
    annotated = info.type
    optional = type(None) in get_args(annotated)
    if optional:
        annotated = next(member for member in get_args(annotated) if member is not type(None))
    value_type, meta = annotated, Meta()
    if get_origin(annotated) is Annotated:
        value_type, meta, *_ = get_args(annotated)
    choices: tuple[str, ...] = ()
    kind: Any
    if value_type in _SCALARS:
        kind = _SCALARS[value_type]
    elif get_origin(value_type) is Literal:
        kind, choices = "choice", get_args(value_type)
    elif get_origin(value_type) is tuple:
        kind = "list" if str in get_args(value_type) else "ints"  # a tuple of texts or of integers
    else:
        raise ValueError(f"the field {name} has the type {value_type}")
    return Field(
        name=name,
        label=about.label,
        help=about.help,
        group="main" if "main" in about.traits else group,
        kind=kind,
        default=info.default,
        optional=optional,
        choices=choices,
        minimum=meta.ge if meta.ge is not None else meta.gt,
        maximum=meta.le if meta.le is not None else meta.lt,
        limits=_describe_limits(meta),
        needs=about.needs,
        traits=about.traits,
    )


def _describe_limits(meta: Meta) -> str:
    """Describe the limits of a type annotation, such as "from 1 to 64" or "above 0 and below 1"."""
    if meta.max_length is not None:
        return f"of at most {meta.max_length} characters"
    if meta.ge is not None and meta.le is not None:
        return f"from {meta.ge:,g} to {meta.le:,.10g}"
    if meta.lt is not None:
        lower = f"from {meta.ge:g} to" if meta.ge is not None else f"above {meta.gt:g} and"
        return f"{lower} below {meta.lt:g}"
    if meta.gt is not None and meta.le is not None:
        return f"above {meta.gt:g}, up to {meta.le:g}"
    if meta.ge is not None:
        return f"of at least {meta.ge:,.10g}"
    return f"of at most {meta.le:,.10g}" if meta.le is not None else ""


_KIND_TITLES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "text": "text",
    "list": "a list of strings",
    "ints": "a list of whole numbers",
}


def create_value_problem(field: Field, name: str, value: Any) -> Problem:
    """Return a problem that says that `field` does not accept `value`, and which values it accepts.

    `name` is the name of the field in the problem.
    """
    if field.choices:
        near = difflib.get_close_matches(str(value), field.choices, n=1)
        hint = f" Did you mean “{near[0]}”?" if near else ""
        message = f"{field.label}: {value!r} is not one of its choices."
        return Problem(name, message, f"Choose {', '.join(field.choices)}.{hint}")
    if field.kind == "text" and isinstance(value, str):  # the length is the only limit of texts
        return Problem(name, f"{field.label} has {len(value)} characters.", f"Give text {field.limits}.")
    number_types = {"int": int, "float": int | float}.get(field.kind, ())
    if field.limits and isinstance(value, number_types) and not isinstance(value, bool):
        return Problem(name, f"{field.label}: {value!r} is out of range.", f"Give a value {field.limits}.")
    expected = f"{_KIND_TITLES[field.kind]} {field.limits}".strip()
    return Problem(name, f"{field.label}: {value!r} is not {_KIND_TITLES[field.kind]}.", f"Give {expected}.")
