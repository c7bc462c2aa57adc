"""Checks of a complete job."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from engine.checks.disk import Disk, RealDisk
from engine.checks.gpu_checks import offer_other_gpu
from engine.checks.node_checks import host_problems
from engine.checks.strategy_checks import strategy_problems
from engine.checks.training_checks import augmentation_problems, image_size_problems, optimizer_problems, speed_problems
from engine.checks.weights_checks import weights_problems
from engine.contract.catalogue import (
    DROPOUT_FIELDS,
    Catalogue,
    ModelEntry,
    StrategyEntry,
    TaskEntry,
    command_if_missing,
    suggest_name,
)
from engine.contract.dataset import DatasetReport, parse_fold
from engine.contract.devices import Snapshot, gpu_title, host_of, is_gpu
from engine.contract.idle_fields import idle_field_warnings
from engine.contract.images import image_size_problem
from engine.contract.job import AUTO_STRATEGY, FIELDS, TIMM, Job
from engine.contract.options import option_problems
from engine.contract.problems import Choice, Problem, errors
from engine.contract.weights import HUB_FILES, TIMM_ENCODER
from engine.system.format import counted

REAL_DISK = RealDisk()


def problems(
    job: Job,
    catalogue: Catalogue,
    machine: Snapshot | None = None,
    report: DatasetReport | None = None,
    disk: Disk = REAL_DISK,
    *,
    chosen: Collection[str] | None = None,
) -> list[Problem]:
    """Return all problems with `job`, errors and warnings. Unknown facts cause no problem.

    Without `machine` or `report`, checks that depend on the devices or the images are skipped. `chosen` contains the
    fields that the user has set. If it is None, warnings about fields that the user has or hasn't set are skipped.
    """
    task, strategy = catalogue.task(job.task), catalogue.strategy(job.resolved_strategy)
    is_in_file = job.model_is_file or (task is not None and task.file)
    model = None if is_in_file else catalogue.model(job.model.name)
    found = [
        *dataset_problems(job, report, disk),
        *_task_problems(job, task, catalogue, report, disk),
        *_loss_problems(job, task),
        *_batch_size_warning(job, report, chosen),
        *option_problems(job.options, catalogue.options_of(job.task, job.model.name, job.resolved_strategy)),
        *(_model_file_problems(job, disk) if is_in_file else _named_model_problems(job, model, catalogue)),
        *weights_problems(job, catalogue, disk, chosen=chosen),
        *_file_problems(job, disk),
        *_unknown_strategy_problems(job, strategy, catalogue),
        *augmentation_problems(job),
        *_fold_problems(job),
        *image_size_problems(job, task, strategy, model),
        *_device_problems(job, strategy, machine),
    ]
    if strategy is not None:
        found += strategy_problems(job, strategy, model)
        found += [*speed_problems(job, strategy), *optimizer_problems(job, strategy)]
    found += _precision_problems(job)
    reported_fields = {problem.field for problem in found}
    idle_warnings = [each for each in idle_field_warnings(job, catalogue) if each.field not in reported_fields]
    return [*map(_offer_automatic, found), *catalogue.problems, *idle_warnings]


def _task_problems(
    job: Job, task: TaskEntry | None, catalogue: Catalogue, report: DatasetReport | None, disk: Disk
) -> list[Problem]:
    """Return the problems with the task, the number of classes, and the metric that selects the best checkpoint.

    The number of classes is checked only in a dataset that was read without errors.
    """
    if task is None:
        known = [each.id for each in catalogue.tasks]
        return [Problem("task", f"There is no task “{job.task}”.", suggest_name(job.task, known))]
    found: list[Problem] = []
    if report is not None and report.format and not errors(report.problems):
        found += class_count_problems(task, len(report.classes))
    if job.checkpoints.best_by:
        found += _best_by_problems(job, task, len(report.classes) if report is not None else 0, disk)
    return found


def _file_problems(job: Job, disk: Disk) -> Iterator[Problem]:
    """Yield the problems with the files that a job starts from: a checkpoint to resume, or initial weights."""
    if job.checkpoints.resume_from and (message := _explain_unreadable(job.checkpoints.resume_from, disk)):
        remedy = "Choose the last.pt in a run's checkpoints folder, or leave it empty."
        yield Problem("resume_from", message, remedy)
    weights_file = job.model.weights_file
    if not weights_file:
        return
    if disk.kind(weights_file) == "folder":  # saved by transformers, with a fixed name for the file of weights
        weights_file = f"{weights_file}/{HUB_FILES[0]}"
    if message := _explain_unreadable(weights_file, disk):
        yield Problem("weights_file", message, "Check the spelling, or browse for it.")


def _unknown_strategy_problems(job: Job, strategy: StrategyEntry | None, catalogue: Catalogue) -> list[Problem]:
    """Return a problem if the catalogue doesn't list the job's strategy, so that `strategy` is None."""
    if strategy is not None:
        return []
    known = [AUTO_STRATEGY, *(each.id for each in catalogue.strategies)]
    message = f"There is no strategy “{job.resolved_strategy}”."
    return [Problem("strategy", message, suggest_name(job.resolved_strategy, known))]


def _precision_problems(job: Job) -> list[Problem]:
    """Return a problem if the job requests fp16 on the CPU, otherwise []."""
    if job.precision.name != "fp16" or any(map(is_gpu, job.parallel.devices)):
        return []
    message = "fp16 needs a GPU: on the CPU it is slower than fp32 and loses accuracy."
    return [Problem("precision", message, "Choose fp32 or bf16.")]


def _offer_automatic(problem: Problem) -> Problem:
    """Return an error of the chosen strategy with the automatic strategy as a remedy, and other problems unchanged."""
    if problem.field != "strategy" or problem.severity != "error":
        return problem
    return msgspec.structs.replace(problem, choices=(Choice("Use Automatic", {"strategy": AUTO_STRATEGY}),))


def _explain_unreadable(path: str, disk: Disk) -> str:
    """Return the reason why the file `path` can't be opened, or "" if it can be opened or that is unknown."""
    match disk.kind(path):
        case "file" | None:
            return ""
        case "":
            return f"There is no file {path}."
        case "folder":
            return f"{path} is a folder, not a file."
    return f"{path} is not a regular file."


def dataset_problems(job: Job, report: DatasetReport | None = None, disk: Disk = REAL_DISK) -> list[Problem]:
    """Return the problems with the job's dataset folder, including those in its inspection `report`."""
    if not job.data.dataset:
        return [Problem("dataset", "No dataset folder is chosen.", "Choose the folder with the images.")]
    kind = disk.kind(job.data.dataset)
    if kind == "":
        return [Problem("dataset", f"There is no folder {job.data.dataset}.", "Check the spelling, or browse for it.")]
    if kind not in ("folder", None):
        message = f"{job.data.dataset} is a file, not a folder."
        return [Problem("dataset", message, "Choose the folder with the images.")]
    return list(report.problems) if report is not None else []


def _fold_problems(job: Job) -> list[Problem]:
    """Return a problem if the job's `fold` is not written as in "2/5"."""
    if not job.data.fold or parse_fold(job.data.fold) is not None:
        return []
    message = f"There is no fold “{job.data.fold}”."
    return [Problem("fold", message, "Write 1/5 to 5/5 for five folds, or leave it empty.")]


def _loss_problems(job: Job, task: TaskEntry | None) -> list[Problem]:
    """Return a problem if the task doesn't offer the job's loss. Tasks without a choice of losses have none."""
    if task is None or not task.losses or job.training.loss in task.losses:
        return []
    return [Problem("loss", f"{task.title} has no loss “{job.training.loss}”.", f"Choose {' or '.join(task.losses)}.")]


def _batch_size_warning(job: Job, report: DatasetReport | None, chosen: Collection[str] | None) -> list[Problem]:
    """Return a warning if the user has chosen a batch size that exceeds the number of training images."""
    if report is None or chosen is None or "batch_size" not in chosen:
        return []
    train = report.split("train")
    if train is None or train.images == 0 or job.training.batch_size <= train.images:
        return []
    message = f"A batch of {job.training.batch_size:,} is larger than the training split of {train.images:,}."
    choice = Choice(f"Use {train.images:,}", {"batch_size": train.images})
    return [Problem("batch_size", message, f"Set {train.images:,} or less.", "warning", (choice,))]


def _best_by_problems(job: Job, task: TaskEntry, classes: int, disk: Disk) -> list[Problem]:
    """Return a problem if the metric that selects the best checkpoint is unknown or constant.

    `classes` is the number of classes, or 0 if it is unknown.
    """
    name = job.checkpoints.best_by
    file = disk.model_file(job.model.name) if task.file else None
    metrics_in_file = file.measures if file is not None else ()
    known = {measure.id: measure for measure in (*metrics_in_file, *task.metrics)}
    if name in known and known[name].is_always_one(classes):
        message = f"{known[name].title} is always 100% with {counted(classes, 'class')}."
        return [Problem("best_by", message, "Choose another metric.")]
    # If the metrics can't be determined from the file's text, the run checks the name at its start.
    is_unknowable = task.file and not metrics_in_file
    if name in known or is_unknowable:
        return []
    return [Problem("best_by", f"“{name}” is not a metric of this task.", suggest_name(name, list(known)))]


def class_count_problems(task: TaskEntry, classes: int) -> list[Problem]:
    """Return a problem if the task can't be trained with this number of classes.

    Only tasks that find lines in masks have a fixed number.
    """
    if task.classes in (None, classes):
        return []
    message = (
        f"The masks have {counted(classes, 'class')}; the task {task.title} distinguishes only lines and background."
    )
    remedy = "Use masks of two values, 0 for the background, ignore a third, or choose the task Semantic segmentation."
    return [Problem("dataset", message, remedy)]


def _model_file_problems(job: Job, disk: Disk) -> list[Problem]:
    """Return a problem if the model's file can't be read, or if the user has not allowed its present content to run.

    The job must name the hash of this content, and the user's consent to it must be recorded on this machine.
    """
    if not job.model_is_file:
        message = "A Python file of yours defines this task."
        return [Problem("model", message, "Choose that file as the model; resources/examples has an example.")]
    file = disk.model_file(job.model.name)
    if file is None:
        return []
    if file.sha256 is None:
        if disk.kind(job.model.name) == "other":
            return [Problem("model", f"The model file {job.model.name} is not a regular file.", "Give a Python file.")]
        message = f"The model file {job.model.name} can't be read."
        return [Problem("model", message, "Check the path and its permissions.")]
    allowed = job.model.model_file_sha256
    if allowed == file.sha256 and file.agreed:
        return []
    message = f"{Path(job.model.name).name} contains code that you have not allowed to run yet."
    if allowed not in ("", file.sha256):
        message += " It has changed since you allowed it."
    remedy = "Read it, then allow it (in the window), or add --trust-model-file (in a terminal)."
    return [Problem("model", message, remedy)]


def _named_model_problems(job: Job, model: ModelEntry | None, catalogue: Catalogue) -> list[Problem]:
    """Return the problems with a model that is chosen by name. `model` is None if the catalogue doesn't list it."""
    if model is not None:
        return list(_model_problems(job, model, catalogue))
    if not job.model.name.startswith(TIMM):
        known = [entry.id for entry in catalogue.models]
        return [Problem("model", f"There is no model “{job.model.name}”.", suggest_name(job.model.name, known))]
    # Whether the model exists is only known to the engine, after importing timm.
    if not any(entry.id.startswith(TIMM) for entry in catalogue.models_of(job.task)):
        task = catalogue.task(job.task)
        instead = f"Choose a model for this task, such as {task.model}." if task is not None else "Choose another."
        return [Problem("model", "This task does not support timm's models.", instead)]
    return []


def _model_problems(job: Job, model: ModelEntry, catalogue: Catalogue) -> Iterator[Problem]:
    """Yield the problems with a model from the catalogue.

    The problems concern the model's task, a missing package, the encoder, the image size, dropout, and frozen layers.
    """
    task = catalogue.task(job.task)
    # A task may use the models of another task.
    model_task = task.models if task is not None and task.models else job.task
    if model.task != model_task:
        instead = f"Choose a model for this task, such as {task.model}." if task is not None else "Choose another."
        yield Problem("model", f"{model.title} is not a model for this task.", instead)
    if command := command_if_missing(model.extra):
        yield Problem("model", f"{model.title} needs a package that is not installed.", f"Run: {command}")
    if model.encoder and not _has_encoder(job.model.encoder, catalogue):
        remedy = suggest_name(job.model.encoder, list(catalogue.encoders))
        yield Problem("encoder", f"There is no encoder “{job.model.encoder}”.", remedy)
    if job.data.image_size is not None and (
        problem := image_size_problem(model.title, job.data.image_size, model.min_image_size, model.image_size_step)
    ):
        yield problem
    for name in DROPOUT_FIELDS:
        if job.value(name) is not None and name not in model.fields:
            message = f"{model.title} has no {FIELDS[name].label.lower()}."
            yield Problem(name, message, "Leave it empty, or choose a model that has it, such as EfficientNet-B0.")
    if job.model.freeze_epochs and not (job.model.pretrained or job.model.weights_file):
        message = "The backbone is frozen but starts from random weights."
        yield Problem("freeze_epochs", message, "Choose pretrained weights, or train all layers.", "warning")


def _has_encoder(name: str, catalogue: Catalogue) -> bool:
    """Return True if the catalogue lists an encoder, or if its name has the prefix of timm's encoders."""
    return name in catalogue.encoders or name.startswith(TIMM_ENCODER)


def _device_problems(job: Job, strategy: StrategyEntry | None, machine: Snapshot | None) -> Iterator[Problem]:
    """Yield the problems with a job's devices: none, mixed, repeated, unknown or lost ones, or of a wrong kind.

    Lost and unknown GPUs are recognized only if the devices of this machine are given by `machine`.
    """
    if not job.parallel.devices:
        yield Problem("devices", "No device is chosen.", "Check at least one GPU or the CPU.")
        return
    gpus = [device for device in job.parallel.devices if is_gpu(device)]
    if gpus and len(gpus) != len(job.parallel.devices):
        yield Problem("devices", "A run can't use GPUs and the CPU together.", "Check either GPUs or the CPU.")
    twice = sorted({gpu for gpu in gpus if gpus.count(gpu) > 1})
    if twice:
        message = f"{', '.join(twice)} is listed more than once: NCCL allows one worker per GPU."
        yield Problem("devices", message, "List each GPU once.")
    if machine is not None:
        known = {gpu.uuid: gpu for gpu in machine.gpus}
        for uuid in dict.fromkeys(gpu for gpu in gpus if not host_of(gpu)):
            gpu = known.get(uuid)
            if gpu is None:
                remedy = machine.nvml.message or "Choose one that `footplate gpus` lists."
                yield Problem("devices", f"There is no GPU {uuid} on this machine.", remedy)
            elif gpu.lost:
                message = f"{gpu_title(gpu)} ({gpu.name}, {uuid}) has been lost."
                choices = offer_other_gpu(job.parallel.devices, gpu, machine)
                yield Problem("devices", message, "Choose another, or restart the machine.", choices=choices)
    yield from host_problems(job, strategy)
    if strategy is not None:
        kinds = {"cuda" if is_gpu(device) else "cpu" for device in job.parallel.devices}
        if not kinds <= set(strategy.device_kinds):
            needed = "CUDA GPUs" if strategy.device_kinds == ("cuda",) else "CPU workers"
            message = f"{strategy.title} runs on {needed} only."
            yield Problem("strategy", message, "Choose another strategy or other devices.")
