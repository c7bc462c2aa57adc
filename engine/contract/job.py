"""The job: what the user asked for. Validated once, frozen, saved as `job.toml` with every run."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec
import tomli_w
from msgspec import Meta

from engine.contract.problems import Problem
from engine.system import paths

JOB_VERSION = 2

Group = Literal[
    "main", "training", "optimizer", "schedule", "checkpoints", "faults", "data", "precision", "model", "strategy"
]
"""Where a field stands; those of "main" are always in sight."""

Matter = Literal["report", "order", "speed", "memory"]
"""What the value of a field decides: what is found in the dataset folder, in which order samples come, which settings
are fastest, and how much memory a part of a batch takes."""


class Need(NamedTuple):
    """What a field needs to have an effect: that one of `fields` has one of `values`; where there are none of these,
    that it is anything but 0, off or empty.
    """

    fields: tuple[str, ...]
    values: tuple[Any, ...] = ()

    def met(self, value: Callable[[str], Any]) -> bool:
        """`value` gives that of a field."""
        given = [value(name) for name in self.fields]
        return any(each in self.values for each in given) if self.values else any(given)


def _about(
    label: str,
    help_text: str,
    group: Group,
    *needs: Need,
    resume: bool = False,
    recipe: bool = False,
    resolved: bool = False,
    decides: tuple[Matter, ...] = (),
    **limits: Any,
) -> Meta:
    extra = {
        "group": group,
        "needs": needs,
        "resume": resume,
        "recipe": recipe,
        "resolved": resolved,
        "decides": frozenset(decides),
    }
    return Meta(title=label, description=help_text, extra=extra, **limits)


_WITH_BETAS = ("adam", "adamw", "nadam", "radam", "lamb")
_NOT_ONECYCLE = Need(("schedule",), ("none", "step", "cosine", "linear", "poly"))


TIMM = "timm:"
"""What stands before the name of a model in timm, in `Job.model`."""


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that decides a training, in the order of the form.

    Each field carries its label, its help, its limits and what it needs of others to have an effect; the form, the
    command line, the checks and the recipes read them from here (see `FIELDS`).
    """

    version: int = JOB_VERSION
    dataset: Annotated[
        str, _about("Dataset folder", "The folder that holds the images.", "main", decides=("report",))
    ] = ""
    task: Annotated[str, _about("Task", "What the model learns to predict.", "main", decides=("report",))] = (
        "classification"
    )
    model: Annotated[
        str,
        _about(
            "Model",
            "A model from the catalogue, or the path to a Python file that defines build_model(num_classes).",
            "main",
            decides=("speed", "memory"),
        ),
    ] = "resnet18"
    strategy: Annotated[
        str,
        _about(
            "Strategy",
            "How the model and each batch are distributed over the devices.",
            "main",
            resume=True,
            decides=("speed", "memory"),
        ),
    ] = "single"
    devices: Annotated[
        tuple[str, ...],
        _about(
            "Devices",
            "GPUs by UUID, or cpu. Repeat cpu for several CPU workers.",
            "main",
            resume=True,
        ),
    ] = ("cpu",)
    epochs: Annotated[
        int,
        _about(
            "Epochs",
            "Passes over the training set.",
            "main",
            resume=True,
            recipe=True,
            ge=1,
            le=100_000,
        ),
    ] = 5
    batch_size: Annotated[
        int,
        _about(
            "Batch size",
            "Images per optimizer step across all devices; every strategy divides it among them.",
            "main",
            recipe=True,
            decides=("order", "speed", "memory"),
            ge=1,
            le=1_000_000,
        ),
    ] = 32
    optimizer: Annotated[
        Literal["sgd", "adam", "adamw", "nadam", "radam", "rmsprop", "adagrad", "lamb"],
        _about("Optimizer", "An optimizer of PyTorch, or timm's LAMB.", "optimizer", recipe=True),
    ] = "sgd"
    momentum: Annotated[
        float,
        _about(
            "Momentum",
            "Momentum of SGD and RMSprop; beta1 of the Adam family. OneCycle cycles it from 0.95 to 0.85 and back.",
            "optimizer",
            Need(("optimizer",), ("sgd", "rmsprop", *_WITH_BETAS)),
            recipe=True,
            ge=0,
            lt=1,
        ),
    ] = 0.9
    beta2: Annotated[
        float,
        _about(
            "Second beta",
            "Decay of the moving average of squared gradients: beta2 of the Adam family, alpha of RMSprop.",
            "optimizer",
            Need(("optimizer",), ("rmsprop", *_WITH_BETAS)),
            recipe=True,
            ge=0,
            lt=1,
        ),
    ] = 0.999
    nesterov: Annotated[
        bool,
        _about(
            "Nesterov momentum",
            "Uses Nesterov momentum in SGD.",
            "optimizer",
            Need(("optimizer",), ("sgd",)),
            Need(("momentum",)),
            recipe=True,
        ),
    ] = False
    learning_rate: Annotated[
        float, _about("Learning rate", "Peak learning rate of the schedule.", "main", recipe=True, gt=0, le=100)
    ] = 0.01
    weight_decay: Annotated[
        float,
        _about(
            "Weight decay", "L2 penalty (SGD, Adam) or decoupled decay (AdamW).", "optimizer", recipe=True, ge=0, le=10
        ),
    ] = 0.0001
    decay_norms: Annotated[
        bool,
        _about(
            "Decay norms and biases",
            "Also applies weight decay to normalization layers, biases and tokens.",
            "optimizer",
            Need(("weight_decay",)),
            recipe=True,
        ),
    ] = True
    layer_decay: Annotated[
        float,
        _about(
            "Layer decay",
            "Factor by which the learning rate shrinks per layer, from the head down to the input; 1 for one rate "
            "throughout. 0.75 is typical for transformers, 0.9 for convolutional networks.",
            "optimizer",
            recipe=True,
            gt=0,
            le=1,
        ),
    ] = 1.0
    head_rate: Annotated[
        float,
        _about(
            "Head rate",
            "Multiplies the learning rate of the head; 1 for the same rate as the backbone.",
            "optimizer",
            recipe=True,
            gt=0,
            le=1000,
        ),
    ] = 1.0
    optimizer_kernel: Annotated[
        Literal["fused", "foreach", "for_loop"],
        _about(
            "Optimizer kernel",
            "A fused kernel, one call per operation for all parameters, or a loop over the parameters.",
            "optimizer",
            recipe=True,
        ),
    ] = "fused"
    schedule: Annotated[
        Literal["none", "step", "cosine", "linear", "poly", "onecycle"],
        _about("Schedule", "How the learning rate changes over the run.", "schedule", recipe=True),
    ] = "cosine"
    milestones: Annotated[
        tuple[int, ...],
        _about(
            "Steps down after",
            "Epochs after which the step schedule divides the learning rate by 10; empty for each third of the run.",
            "schedule",
            Need(("schedule",), ("step",)),
            recipe=True,
        ),
    ] = ()
    final_rate: Annotated[
        float,
        _about(
            "Final rate",
            "Final learning rate of the cosine, linear and polynomial schedules, as a fraction of the peak.",
            "schedule",
            Need(("schedule",), ("cosine", "linear", "poly")),
            recipe=True,
            ge=0,
            lt=1,
        ),
    ] = 0.0
    warmup_epochs: Annotated[
        float,
        _about(
            "Warm-up epochs",
            "Length of the linear learning-rate warm-up in epochs, possibly fractional; 0 for none.",
            "schedule",
            _NOT_ONECYCLE,
            recipe=True,
            ge=0,
            le=100_000,
        ),
    ] = 0.0
    warmup_steps: Annotated[
        int,
        _about(
            "Warm-up steps",
            "Length of the warm-up in optimizer steps; if both are set, the longer one applies.",
            "schedule",
            _NOT_ONECYCLE,
            recipe=True,
            ge=0,
            le=1_000_000_000,
        ),
    ] = 0
    warmup_start: Annotated[
        float,
        _about(
            "Warm-up from",
            "Learning rate at the start of the warm-up, as a fraction of the peak.",
            "schedule",
            Need(("warmup_epochs", "warmup_steps")),
            recipe=True,
            ge=0,
            le=1,
        ),
    ] = 0.01
    loss: Annotated[
        Literal["cross_entropy", "bce", "focal", "dice", "cross_entropy_dice"],
        _about(
            "Loss",
            "For images: cross entropy, or binary cross entropy per class. For pixels: cross entropy; focal, "
            "which down-weights easy pixels; Dice, based on the overlap of each class; or the mean of cross "
            "entropy and Dice.",
            "training",
            recipe=True,
        ),
    ] = "cross_entropy"
    class_weights: Annotated[
        Literal["none", "balanced"],
        _about(
            "Class weights",
            "Balanced: the rarer a class is in the training data, the more it weighs in the loss.",
            "training",
            Need(("loss",), ("cross_entropy", "bce", "focal", "cross_entropy_dice")),
            recipe=True,
        ),
    ] = "none"
    label_smoothing: Annotated[
        float,
        _about(
            "Label smoothing",
            "Fraction of each target spread evenly over all classes; 0 for none.",
            "training",
            recipe=True,
            ge=0,
            lt=1,
        ),
    ] = 0.0
    mixup: Annotated[
        float,
        _about(
            "Mixup",
            "Blends each image with another by a weight drawn from Beta(a, a), where a is this value; 0 for none, "
            "0.2 is typical.",
            "training",
            recipe=True,
            ge=0,
            le=100,
        ),
    ] = 0.0
    cutmix: Annotated[
        float,
        _about(
            "CutMix",
            "Pastes a patch of another image into each, its area drawn from Beta(a, a), where a is this value; 0 "
            "for none, 1 is typical.",
            "training",
            recipe=True,
            ge=0,
            le=100,
        ),
    ] = 0.0
    accumulation: Annotated[
        int,
        _about(
            "Gradient accumulation",
            "Number of parts in which each batch is processed, one after another, before one optimizer step.",
            "training",
            resume=True,
            recipe=True,
            resolved=True,
            decides=("speed",),
            ge=1,
            le=4096,
        ),
    ] = 1
    clip_norm: (
        Annotated[
            float,
            _about(
                "Clip gradients",
                "Maximum global norm of the gradients; larger ones are scaled down. Empty for no limit.",
                "training",
                recipe=True,
                gt=0,
                le=1_000_000,
            ),
        ]
        | None
    ) = None
    ema_decay: (
        Annotated[
            float,
            _about(
                "Weight average",
                "Decay per step of an exponential moving average of the weights. The average is validated and "
                "saved as best. Empty for none.",
                "training",
                recipe=True,
                gt=0,
                lt=1,
            ),
        ]
        | None
    ) = None
    ema_ramp: Annotated[
        int,
        _about(
            "Average ramp",
            "Time constant, in steps, with which the decay of the weight average rises, so that the initial "
            "weights do not dominate the average of a short run; 0 for the full decay at once.",
            "training",
            Need(("ema_decay",)),
            recipe=True,
            ge=0,
            le=1_000_000,
        ),
    ] = 2000
    patience: (
        Annotated[
            int,
            _about(
                "Stop early after",
                "Ends the run after this many epochs without improvement in the metric that decides which "
                "checkpoint is best. Empty to train all epochs.",
                "training",
                resume=True,
                recipe=True,
                ge=1,
                le=100_000,
            ),
        ]
        | None
    ) = None
    seed: Annotated[
        int,
        _about(
            "Seed",
            "Fixes the initial weights, the order of the data and the augmentation.",
            "training",
            decides=("report", "order"),
            ge=0,
            le=2**31 - 1,
        ),
    ] = 0
    best_by: Annotated[
        str,
        _about(
            "Keep best by",
            "The validation metric that decides which checkpoint is best; empty for the task's first.",
            "checkpoints",
        ),
    ] = ""
    checkpoint_minutes: Annotated[
        float,
        _about(
            "Checkpoint every (minutes)",
            "Saves a checkpoint during an epoch once the last one is this old; 0 to save only at the end of epochs.",
            "checkpoints",
            resume=True,
            ge=0,
            le=10_080,
        ),
    ] = 5.0
    checkpoint_steps: Annotated[
        int,
        _about(
            "Checkpoint every (steps)",
            "Also saves a checkpoint each time this many optimizer steps have passed; 0 for none by steps.",
            "checkpoints",
            resume=True,
            ge=0,
            le=1_000_000_000,
        ),
    ] = 0
    keep_checkpoints: Annotated[
        int,
        _about(
            "Older checkpoints kept",
            "Earlier checkpoints to keep besides last.pt and best.pt. With at least one, a damaged last.pt does "
            "not lose the run.",
            "checkpoints",
            resume=True,
            ge=0,
            le=100_000,
        ),
    ] = 1
    predictions: Annotated[
        int,
        _about(
            "Predictions kept",
            "Number of validation images whose predictions are saved at every validation; 0 for none.",
            "checkpoints",
            resume=True,
            ge=0,
            le=64,
        ),
    ] = 8
    resume_from: Annotated[
        str,
        _about(
            "Continue from",
            "A last.pt or an older checkpoint, saved under any strategy. Restores its weights, optimizer and "
            "position in the run.",
            "checkpoints",
        ),
    ] = ""
    start: Annotated[
        Literal["when_free", "at_once"],
        _about(
            "Start",
            "When its devices are free, queued behind Footplate's other runs; or at once, alongside them.",
            "faults",
            resume=True,
        ),
    ] = "when_free"
    wait_for_others: Annotated[
        bool,
        _about(
            "Wait for others",
            "Also waits until no other user's process is on its GPUs.",
            "faults",
            Need(("start",), ("when_free",)),
            resume=True,
        ),
    ] = False
    restarts: Annotated[
        int,
        _about(
            "Restarts after a fault",
            "How many times in a row, without a new checkpoint in between, a run restarts from its last "
            "checkpoint after a worker dies or hangs; 0 for never.",
            "faults",
            resume=True,
            ge=0,
            le=1000,
        ),
    ] = 3
    on_lost_machine: Annotated[
        Literal["wait", "fewer"],
        _about(
            "Lost machine",
            "A run on several machines that restarts and can't reach one of them: wait up to ten minutes for it; or continue "
            "with fewer, dividing the same batch among the devices that are left.",
            "faults",
            Need(("restarts",)),
            resume=True,
        ),
    ] = "wait"
    on_not_finite: Annotated[
        Literal["stop", "roll_back", "skip"],
        _about(
            "Loss not finite",
            "Stop; roll back to the last checkpoint and skip the images that led there; or skip only such steps, "
            "with a check before each update.",
            "faults",
            resume=True,
        ),
    ] = "stop"
    image_size: (
        Annotated[
            int,
            _about(
                "Image size",
                "Side length, in pixels, of the square images given to the model; empty for the model's default.",
                "data",
                recipe=True,
                decides=("speed", "memory"),
                ge=8,
                le=4096,
            ),
        ]
        | None
    ) = None
    progressive_from: (
        Annotated[
            int,
            _about(
                "Image size at first",
                "Side length in the first epochs, which grows to the image size over the first two thirds of the "
                "run; empty for one size throughout.",
                "data",
                recipe=True,
                ge=8,
                le=4096,
            ),
        ]
        | None
    ) = None
    val_crop: Annotated[
        float,
        _about(
            "Validation crop",
            "Fraction of a validation image's short side that the crop keeps; 0.875 is typical for ImageNet weights.",
            "data",
            recipe=True,
            gt=0,
            le=1,
        ),
    ] = 1.0
    augmentation: Annotated[
        Literal["none", "light", "medium", "strong", "own"],
        _about(
            "Augmentation",
            "Random changes to training images along with their masks and boxes. light crops and mirrors; medium "
            "and strong depend on the task; own applies the transforms listed below.",
            "data",
            recipe=True,
        ),
    ] = "none"
    transforms: Annotated[
        tuple[str, ...],
        _about(
            "Transforms",
            "Transforms of a custom augmentation, such as resized_crop:0.35:1, flip, rotate:10, colour:0.2, "
            "trivial, erase:0.25. Geometric transforms come first, then policies, color, blur and erasing.",
            "data",
            Need(("augmentation",), ("own",)),
            recipe=True,
        ),
    ] = ()
    mirror: Annotated[
        Literal["auto", "on", "off"],
        _about(
            "Mirror images",
            "Whether an image keeps its meaning when mirrored. Auto: yes, except for idx files and for classes "
            "whose names are all "
            "digits or single letters.",
            "data",
            Need(("augmentation",), ("light", "medium", "strong", "own")),
            recipe=True,
        ),
    ] = "auto"
    oversample: Annotated[
        bool,
        _about(
            "Oversample rare classes",
            "Repeats images of rare classes within an epoch, so that all classes occur equally often.",
            "data",
            recipe=True,
            decides=("order",),
        ),
    ] = False
    ignore_value: (
        Annotated[
            int,
            _about(
                "Ignored mask value",
                "Mask pixels of this value belong to no class and are left out of the loss and the metrics. Empty "
                "for the folder's own value, or 255.",
                "data",
                decides=("report",),
                ge=0,
                le=0xFFFFFF,
            ),
        ]
        | None
    ) = None
    points: Annotated[
        int,
        _about(
            "Points",
            "Number of points per sample, drawn anew in every epoch.",
            "data",
            recipe=True,
            ge=64,
            le=1_000_000,
        ),
    ] = 2048
    val_fraction: Annotated[
        float,
        _about(
            "Validation share",
            "Fraction of the images held out for validation if the folder has no split.",
            "data",
            decides=("report",),
            gt=0,
            lt=1,
        ),
    ] = 0.2
    format: Annotated[
        str,
        _about(
            "Dataset format",
            "How the folder's annotations are read. Recognized from its files unless you choose; `footplate inspect` lists "
            "the choices.",
            "data",
            decides=("report",),
        ),
    ] = ""
    fold: Annotated[
        str,
        _about(
            "Fold",
            "For cross-validation: 2/5 holds out the second of five parts of the training images, whatever split the folder has. "
            "Each image is in one of the parts. Empty for the folder's own validation split or a random one.",
            "data",
            decides=("report",),
        ),
    ] = ""
    picture_cache: Annotated[
        Literal["auto", "memory", "disk", "off"],
        _about(
            "Decoded images",
            "Where decoded images are kept: in memory, in a disk cache that all runs share, or nowhere.",
            "data",
            resume=True,
        ),
    ] = "auto"
    loader_workers: Annotated[
        int,
        _about(
            "Loader workers",
            "Threads that read and decode images, per worker process.",
            "data",
            resume=True,
            ge=0,
            le=256,
        ),
    ] = 2
    precision: Annotated[
        Literal["auto", "fp32", "bf16", "fp16"],
        _about(
            "Precision",
            "fp32, or autocast to bf16 or fp16 (fp16 with a loss scaler). Auto: bf16 on GPUs that have it, else fp32.",
            "precision",
            resume=True,
            recipe=True,
            resolved=True,
            decides=("speed",),
        ),
    ] = "auto"
    memory_format: Annotated[
        Literal["auto", "contiguous", "channels_last"],
        _about(
            "Memory format",
            "Memory layout of images. Auto: whichever is faster in a short trial.",
            "precision",
            resume=True,
            recipe=True,
            resolved=True,
        ),
    ] = "auto"
    compile: Annotated[
        Literal["auto", "on", "off"],
        _about(
            "Compile the model",
            "Uses torch.compile. Auto: on GPUs, if a short trial shows that it pays off within the run.",
            "precision",
            resume=True,
            recipe=True,
            resolved=True,
        ),
    ] = "auto"
    deterministic: Annotated[
        bool,
        _about(
            "Deterministic",
            "Bit-identical results in every run on the same devices. Few models need it on the CPU. GPUs lose "
            "their fastest kernels, and a model with an operation that has no deterministic implementation fails.",
            "precision",
            recipe=True,
        ),
    ] = False
    cpu_threads: (
        Annotated[
            int,
            _about(
                "Threads on the CPU",
                "Compute threads per CPU worker; empty to divide the available cores among the workers.",
                "precision",
                resume=True,
                ge=1,
                le=1024,
            ),
        ]
        | None
    ) = None
    encoder: Annotated[
        str,
        _about(
            "Encoder",
            "The backbone, by its name in segmentation_models_pytorch or, with the prefix tu-, in timm.",
            "main",
        ),
    ] = "resnet34"
    pretrained: Annotated[
        bool,
        _about("Pretrained weights", "Start from weights trained on ImageNet.", "main", recipe=True, resolved=True),
    ] = False
    weights_file: Annotated[
        str,
        _about("Weights file", "A weights file to start from instead of pretrained weights.", "model", resolved=True),
    ] = ""
    freeze_epochs: Annotated[
        int,
        _about(
            "Freeze backbone for",
            "Number of epochs at the start in which only the head is trained: 0 for none, the number of epochs "
            "for the whole run.",
            "model",
            recipe=True,
            decides=("memory",),
            ge=0,
            le=100_000,
        ),
    ] = 0
    freeze_batchnorm: Annotated[
        bool,
        _about(
            "Freeze BatchNorm",
            "Keeps BatchNorm's statistics as they are in the initial weights; for small batches.",
            "model",
            recipe=True,
        ),
    ] = False
    dropout: (
        Annotated[
            float,
            _about(
                "Dropout",
                "Dropout probability of the model's dropout layers; empty for the model's default.",
                "model",
                recipe=True,
                ge=0,
                lt=1,
            ),
        ]
        | None
    ) = None
    stochastic_depth: (
        Annotated[
            float,
            _about(
                "Stochastic depth",
                "Probability that the last block is skipped in training, if the model has stochastic depth; empty "
                "for the model's default.",
                "model",
                recipe=True,
                ge=0,
                lt=1,
            ),
        ]
        | None
    ) = None
    model_file_sha256: Annotated[
        str,
        _about(
            "Trusted model file",
            "SHA-256 of the model file that you have allowed to run.",
            "main",
            resume=True,
            decides=("speed", "memory"),
        ),
    ] = ""
    replicas: Annotated[
        int,
        _about(
            "Replicas",
            "Copies of the model that train side by side, each on an equal share of the devices.",
            "strategy",
            resume=True,
            decides=("speed",),
            ge=2,
            le=1024,
        ),
    ] = 2
    pipeline_schedule: Annotated[
        Literal["gpipe", "1f1b", "interleaved_1f1b", "zb1p", "zbv"],
        _about(
            "Pipeline schedule",
            "GPipe, 1F1B, interleaved 1F1B, or the zero-bubble ZB1P and ZBV.",
            "strategy",
            resume=True,
            decides=("speed",),
        ),
    ] = "gpipe"
    microbatches: (
        Annotated[
            int,
            _about(
                "Microbatches",
                "Number of parts into which a pipeline splits each batch; empty to choose automatically.",
                "strategy",
                resume=True,
                decides=("speed",),
                ge=1,
                le=4096,
            ),
        ]
        | None
    ) = None
    stages_per_device: (
        Annotated[
            int,
            _about(
                "Stages per device",
                "Number of stages on each device under interleaved 1F1B; empty for two.",
                "strategy",
                Need(("pipeline_schedule",), ("interleaved_1f1b",)),
                resume=True,
                decides=("speed",),
                ge=2,
                le=64,
            ),
        ]
        | None
    ) = None
    cuts: Annotated[
        tuple[str, ...],
        _about(
            "Cuts",
            "The points where the model is cut, in order; empty to choose by measurement.",
            "strategy",
            resume=True,
            resolved=True,
        ),
    ] = ()
    balance: Annotated[
        Literal["equal", "speed"],
        _about(
            "Shares of the batch",
            "Equal, or in proportion to each device's speed, measured before the first step.",
            "strategy",
            resume=True,
        ),
    ] = "equal"
    bucket_mib: Annotated[
        float,
        _about(
            "Bucket size (MiB)",
            "Gradients are all-reduced in buckets of this size during the backward pass.",
            "strategy",
            resume=True,
            gt=0,
            le=4096,
        ),
    ] = 25.0
    gradient_compression: Annotated[
        Literal["none", "fp16", "bf16"],
        _about("Gradient compression", "Precision of the gradients sent between devices.", "strategy", resume=True),
    ] = "none"
    static_graph: Annotated[
        bool,
        _about(
            "Static graph",
            "Promises that every step uses the same parameters, which lets DDP overlap more communication.",
            "strategy",
            resume=True,
        ),
    ] = False
    sync_batchnorm: Annotated[
        bool,
        _about(
            "SyncBatchNorm", "Computes BatchNorm statistics over the batch of all devices.", "strategy", resume=True
        ),
    ] = False
    shard_precision: Annotated[
        Literal["fp32", "bf16"],
        _about(
            "Shards computed in",
            "fp32 with autocast to the precision above, or bf16 throughout; gradients are reduced in fp32.",
            "strategy",
            resume=True,
        ),
    ] = "fp32"
    cpu_offload: Annotated[
        bool,
        _about(
            "Offload to CPU", "Keeps shards, gradients and optimizer state in main memory.", "strategy", resume=True
        ),
    ] = False
    activation_checkpointing: Annotated[
        bool,
        _about(
            "Activation checkpointing",
            "Recomputes the activations of each block in the backward pass instead of keeping them.",
            "strategy",
            resume=True,
            decides=("memory",),
        ),
    ] = False
    recipe: Annotated[
        str,
        _about("Recipe", "The recipe that set the fields; fields changed since are marked.", "main"),
    ] = ""
    name: Annotated[str, _about("Run name", "A name for the run.", "training", resume=True, max_length=120)] = ""
    options: dict[str, bool | int | float | str] = {}
    """What the job's task, model and strategy declare beside themselves (see `engine.contract.options`)."""

    def __hash__(self) -> int:
        return hash((*(getattr(self, name) for name in FIELDS), *sorted(self.options.items())))

    @property
    def unfreezes(self) -> bool:
        """Whether a backbone that is frozen at first is trained later."""
        return 0 < self.freeze_epochs < self.epochs

    @property
    def model_is_file(self) -> bool:
        """Whether `model` is the path of the user's own Python file rather than a catalogue name."""
        return self.model.endswith(".py")


class Field(msgspec.Struct, frozen=True):
    """What the form and the command line need to know of one field of `Job`."""

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
    """What lies between them, in words."""
    needs: tuple[Need, ...] = ()
    """What all must be met for the field to have an effect."""
    resume: bool = False
    """Whether a run may be resumed with another value: on what, how and how long it trains, and what is kept of it.
    With other data, another model, seed, optimizer or global batch it would be another training, which is what a fork
    is for."""
    recipe: bool = False
    """Whether a recipe may set it: it says how a model is trained, not what on, nor on which machine."""
    resolved: bool = False
    """Whether the value may be decided once the dataset has been opened, which does not depend on it."""
    decides: frozenset[Matter] = frozenset()

    @property
    def flag(self) -> str:
        """The command line's option, e.g. ``--batch-size``."""
        return "--" + self.name.replace("_", "-")

    @property
    def back_to_default(self) -> str:
        """How to have the default back, as the beginning of a sentence."""
        if isinstance(self.default, bool):
            return f"Turn it {'on' if self.default else 'off'}"
        if self.default in (None, "", ()):
            return "Leave it empty"
        return f"Set it to {self.default if self.kind != 'float' else f'{self.default:g}'}"


def describe(info: msgspec.structs.FieldInfo) -> Field:
    """What the annotations of a field say of it."""
    annotated = info.type
    optional = type(None) in get_args(annotated)
    if optional:
        annotated = next(arm for arm in get_args(annotated) if arm is not type(None))
    value_type, meta = get_args(annotated)
    choices: tuple[str, ...] = ()
    if value_type in (int, float, bool, str):
        kind = {int: "int", float: "float", bool: "bool", str: "text"}[value_type]
    elif str in get_args(value_type):
        kind = "list"
    elif int in get_args(value_type):
        kind = "ints"
    else:
        kind, choices = "choice", get_args(value_type)
    return Field(
        name=info.name,
        label=meta.title,
        help=meta.description,
        kind=kind,  # type: ignore[arg-type]
        default=info.default,
        optional=optional,
        choices=choices,
        minimum=meta.ge if meta.ge is not None else meta.gt,
        maximum=meta.le if meta.le is not None else meta.lt,
        limits=_limits(meta),
        **meta.extra,
    )


def _limits(meta: Meta) -> str:
    """A field's limits in words, which say whether the ends belong to them."""
    if meta.max_length is not None:
        return f"of at most {meta.max_length} characters"
    if meta.ge is not None and meta.le is not None:
        return f"from {meta.ge:,g} to {meta.le:,.10g}"
    if meta.lt is not None:
        begin = f"from {meta.ge:g} to" if meta.ge is not None else f"above {meta.gt:g} and"
        return f"{begin} below {meta.lt:g}"
    if meta.gt is not None and meta.le is not None:
        return f"above {meta.gt:g}, up to {meta.le:g}"
    if meta.ge is not None:
        return f"of at least {meta.ge:,.10g}"
    return f"of at most {meta.le:,.10g}" if meta.le is not None else ""


_INFO = msgspec.structs.fields(Job)
_TYPES: dict[str, Any] = {info.name: info.type for info in _INFO}

FIELDS: dict[str, Field] = {info.name: describe(info) for info in _INFO if info.name not in ("version", "options")}
"""Every field of `Job` but its version and the options of what others declare, by name, in the form's order."""


def deciding(matter: Matter) -> tuple[str, ...]:
    """The names of the fields that decide it."""
    return tuple(name for name, field in FIELDS.items() if matter in field.decides)


def job_from_values(values: dict[str, Any]) -> tuple[Job | None, list[Problem]]:
    """Builds a job from plain values, as read from TOML, flags or the form.

    Every value is judged on its own, so that all that is wrong is told at once. The job is None if
    any problem is an error.
    """
    problems: list[Problem] = []
    accepted: dict[str, Any] = {}
    version = values.get("version", JOB_VERSION)
    if isinstance(version, int) and version > JOB_VERSION:
        problems.append(
            Problem(
                "version",
                f"This job was written by a newer Footplate (job version {version}; this one reads up to "
                f"{JOB_VERSION}).",
                "Update Footplate, or set version = 1 if you know that the fields are the same.",
            )
        )
        return None, problems
    for name, value in _of_this_version(values).items():
        if name not in _TYPES:
            near = difflib.get_close_matches(name, _TYPES, n=1)
            hint = f"Did you mean “{near[0]}”?" if near else "Remove it; `footplate train --help` lists all fields."
            problems.append(Problem(name, f"“{name}” is not a field of a job.", hint))
            continue
        try:
            accepted[name] = msgspec.convert(value, _TYPES[name])
        except msgspec.ValidationError:
            problems.append(wrong_value(FIELDS[name], name, value) if name in FIELDS else _unreadable(name, value))
        else:
            if isinstance(value, str) and not _is_unicode(value):
                shown = value.encode(errors="backslashreplace").decode()
                remedy = "Rename it, or make a symbolic link with a plain name to it."
                problems.append(Problem(name, f"{FIELDS[name].label}: the name {shown} is not UTF-8.", remedy))
    if problems:
        return None, problems
    return Job(**accepted), []


def _of_this_version(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a job of version 1, whose backbone was frozen by two fields, as this version has them."""
    if values.get("version") != 1:
        return values
    values = {**values, "version": JOB_VERSION}
    frozen, after = values.pop("freeze_backbone", False), values.pop("unfreeze_after", None)
    if frozen:
        values["freeze_epochs"] = after if after is not None else FIELDS["freeze_epochs"].maximum
    return values


def _is_unicode(text: str) -> bool:
    """False for file names that the system could not decode, which neither TOML nor JSON can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "text": "text",
    "list": "a list of strings",
    "ints": "a list of whole numbers",
}


def _unreadable(name: str, value: Any) -> Problem:
    if name == "options":
        return Problem(
            name, "The options of a job are a table of single values.", "Write NAME = VALUE below [options]."
        )
    return Problem(name, f"{name}: {value!r} is not a version of a job.", f"Set version = {JOB_VERSION}.")


def wrong_value(field: Field, name: str, value: Any) -> Problem:
    """What is wrong with a value that `field` does not take, told of `name`."""
    if field.choices:
        near = difflib.get_close_matches(str(value), field.choices, n=1)
        hint = f" Did you mean “{near[0]}”?" if near else ""
        return Problem(
            name, f"{field.label}: {value!r} is not one of its choices.", f"Choose {', '.join(field.choices)}.{hint}"
        )
    if field.kind == "text" and isinstance(value, str):
        return Problem(name, f"{field.label} has {len(value)} characters.", f"Give text {field.limits}.")
    kind = {"int": int, "float": int | float}.get(field.kind, ())
    if field.limits and isinstance(value, kind) and not isinstance(value, bool):
        return Problem(name, f"{field.label}: {value!r} is out of range.", f"Give a value {field.limits}.")
    wanted = _KINDS[field.kind]
    return Problem(
        name,
        f"{field.label}: {value!r} is not {wanted}.",
        f"Give {wanted}{' ' + field.limits if field.limits else ''}.",
    )


def load_job(path: Path) -> tuple[Job | None, list[Problem]]:
    """Reads a `job.toml`; see `job_from_values` for what is returned."""
    values, problem = read_toml(path, "job")
    return (None, [problem]) if problem else job_from_values(values)


def read_toml(path: Path, field: str) -> tuple[dict[str, Any], Problem | None]:
    """The values in the file, none where there is a problem with it, which is then told of `field`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")), None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        return {}, Problem(field, f"{path} can't be read: {why}.", "Check the path and its permissions.")
    except (ValueError, RecursionError) as error:  # of too many digits, and of lists too deep in lists, too
        return {}, Problem(field, f"{path} is not valid TOML: {error}.", "Correct that line.")


def job_to_toml(job: Job) -> str:
    """The job as TOML, every field written out; a field that is None is left away, and so are options where "
    "there are none.
    """
    values = {name: value for name, value in msgspec.to_builtins(job).items() if value is not None and value != {}}
    return tomli_w.dumps(values)


def save_job(job: Job, path: Path) -> None:
    """Writes `job.toml`, for its user alone, so that it is either whole or absent."""
    temporary = path.with_name(path.name + ".part")
    temporary.unlink(missing_ok=True)
    with open(temporary, "w", encoding="utf-8", opener=paths.open_private) as stream:
        stream.write(job_to_toml(job))
    os.replace(temporary, path)


def changed_fields(job: Job) -> dict[str, Any]:
    """The fields of `job` that differ from their defaults, in the form's order."""
    return {name: getattr(job, name) for name, field in FIELDS.items() if getattr(job, name) != field.default}
