"""Titles for runs, models, strategies, metrics, devices and choices of job fields."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from engine.contract.catalogue import MeshDimension, load_catalogue
from engine.contract.devices import CPU, group_by_host, host_of, is_gpu, local_device
from engine.contract.events import Restarting
from engine.contract.hosts import SLURM
from engine.contract.job import AUTO_STRATEGY, FIELDS, Field, Job
from engine.runs.folder import ENDED, RunFolder, RunSummary, UnreadableJob
from engine.runs.metrics import format_measure
from engine.system.plain_text import shorten
from gui.format import counted, localized, metric_value, significant
from gui.translation import tr

SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved_1f1b": tr("Interleaved 1F1B"),
    "zb1p": tr("ZB1P (zero bubble)"),
    "zbv": tr("ZBV (zero bubble)"),
}
"""Titles of the pipeline schedules."""

CHOICES = {
    "sgd": "SGD",
    "adam": tr("Adam"),
    "adamw": "AdamW",
    "none": tr("None"),
    "step": "StepLR",
    "linear": tr("Linear"),
    "poly": tr("Polynomial"),
    "nadam": "NAdam",
    "radam": "RAdam",
    "rmsprop": "RMSprop",
    "adagrad": tr("Adagrad"),
    "lamb": "LAMB",
    "fused": tr("Fused"),
    "foreach": tr("Foreach"),
    "for_loop": tr("For loop"),
    "cosine": tr("Cosine"),
    "cross_entropy": tr("Cross entropy"),
    "bce": tr("Binary cross entropy"),
    "focal": tr("Focal"),
    "dice": tr("Dice"),
    "cross_entropy_dice": tr("Cross entropy and Dice"),
    "onecycle": "OneCycle",
    "light": tr("Light"),
    "medium": tr("Medium"),
    "strong": tr("Strong"),
    "own": tr("Custom"),
    "auto": tr("Auto"),
    "on": tr("On"),
    "off": tr("Off"),
    "wait": tr("Wait for it"),
    "fewer": tr("Continue with fewer"),
    "balanced": tr("Balanced"),
    **SCHEDULES,
    "equal": tr("Equal"),
    "speed": tr("By measured speed"),
    "when_free": tr("When free"),
    "at_once": tr("At once"),
    "stop": tr("Stop"),
    "roll_back": tr("Roll back"),
    "skip": tr("Skip the step"),
}
"""Titles for choices of job fields. Other values are their own titles."""

EMPTY = {
    "image_size": tr("model default"),
    "stages_per_device": tr("two"),
    "clip_norm": tr("no limit"),
    "ema_decay": tr("none"),
    "patience": tr("trains all epochs"),
    "progressive_from": tr("one size throughout"),
    "dropout": tr("model default"),
    "stochastic_depth": tr("model default"),
    "ignore_value": tr("as found in the folder"),
}
"""Titles for empty fields whose meaning isn't "automatic"."""

PATHS = ("dataset", "resume_from", "weights_file")
"""Fields whose values are paths. Views show only the last part."""
MAX_UNREAD = 3
"""Maximum number of unreadable runs that are named."""
_ACTIVITIES = {
    "starting": tr("starting"),
    "fetching": tr("fetching its weights"),
    "preparing": tr("preparing"),
    "training": tr("training"),
    "validating": tr("validating"),
    "saving": tr("writing a checkpoint"),
    "pausing": tr("pausing"),
    "stopping": tr("stopping"),
}


def shorten_title(title: str) -> str:
    """Return the title of a metric for use within a sentence, as in "top-1". Abbreviations remain in upper case."""
    first_word = title.partition(" ")[0]
    lowered = title[:1].lower() + title[1:] if first_word[1:].islower() else title
    return lowered.replace(" accuracy", "")


def format_short_measure(task: str, name: str, value: float) -> str:
    """Format a metric with its value, as in "top-1 93.4%"."""
    return shorten_title(format_measure(task, name, value, metric_value))


def describe_job_changes(changes: Mapping[str, object]) -> str:
    """Describe changes to a job, as in "augmentation light, oversample rare classes on"."""
    texts = []
    for name, value in changes.items():
        label = FIELDS[name].label if name in FIELDS else name
        switch = tr("on") if value else tr("off")
        texts.append(f"{label[:1].lower()}{label[1:]} {switch if isinstance(value, bool) else value}")
    return ", ".join(texts)


def describe_attempt(event: Restarting) -> str:
    """Describe a restart by the devices and settings that it changes, as in "accumulation 4".

    A restart without changes is described by its number, as in "attempt 1 of 3".
    """
    changes = []
    if event.devices:
        changes.append(counted(len(event.devices), "device"))
    if event.changes:
        changes.append(describe_job_changes(event.changes))
    return ", ".join(changes) or tr("attempt {attempt} of {attempts}").format(
        attempt=event.attempt, attempts=event.max_attempts
    )


def describe_devices(devices: tuple[str, ...], names: dict[str, str] | None = None) -> str:
    """Describe devices, as in "2 CPU workers", "2 × NVIDIA H200" or "CPU on ws1".

    `names` contains the names of local GPUs by id. GPUs without a name, or with their id as name, are only counted, as
    in "2 GPUs".
    """
    texts = []
    for host, host_devices in group_by_host(devices).items():
        text = _describe_devices(tuple(host_devices), None if host else names)
        if host:
            host_title = tr("node {number}").format(number=host.removeprefix(SLURM)) if host.startswith(SLURM) else host
            text = tr("{devices} on {host}").format(devices=text, host=host_title)
        texts.append(text)
    return ", ".join(texts)


def _describe_devices(devices: tuple[str, ...], names: dict[str, str] | None) -> str:
    """Describe devices of the same machine."""
    workers = devices.count(CPU)
    if workers:
        return "CPU" if workers == 1 else tr("{count} CPU workers").format(count=workers)
    if names is None or any(names.get(device, device) == device for device in devices):
        return "GPU" if len(devices) == 1 else tr("{count} GPUs").format(count=len(devices))
    counts = Counter(names[device] for device in devices)
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counts.items())


def short_uuid(uuid: str) -> str:
    """Return the start of a UUID, as in "GPU-1a2b3c4d…"."""
    return f"{uuid[:12]}…" if len(uuid) > 13 else uuid


def rank_titles(devices: Sequence[str], names: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the title of each rank's device, as in "GPU 0", "ws1 CPU" or "CPU worker 1"."""
    titles = []
    for rank, device in enumerate(devices):
        if not is_gpu(device) and devices.count(device) > 1:
            titles.append(tr("{device} worker {rank}").format(device=device_title(device), rank=rank))
        else:
            titles.append((names or {}).get(device) or device_title(device))
    return tuple(titles)


def device_title(device: str) -> str:
    """Return the title of a device based on its id alone, as in "CPU" or "ws1 GPU-1a2b3c4d…"."""
    title = short_uuid(local_device(device)) if is_gpu(device) else "CPU"
    return f"{host_of(device)} {title}".strip()


@cache
def strategy_title(strategy: str) -> str:
    """Return the title of a strategy, or of the automatic choice."""
    if strategy == AUTO_STRATEGY:
        return tr("Automatic")
    entry = load_catalogue().strategy(strategy)
    return entry.title if entry is not None else strategy


def recommended_strategy_title(*mesh: MeshDimension) -> str:
    """Return the title of the recommended strategy for a mesh of devices."""
    return load_catalogue().recommended_strategy(*mesh).title


@cache
def model_title(model: str) -> str:
    """Return the title of a model in the catalogue, or the name of a model file."""
    entry = load_catalogue().model(model)
    return entry.title if entry is not None else Path(model).name


def run_title(run: RunSummary) -> str:
    """Return the name of a run. For a run without a name, return the dataset's name and the end of the run's id."""
    # Faster than Path, for lists with thousands of runs.
    dataset = os.path.basename(run.dataset.rstrip(os.sep))
    return run.name or f"{shorten(dataset)} · {run.run_id[-4:]}"


def title_of(run: RunFolder) -> str:
    """Return the title of the run in a folder, or its id if its job can't be read. Raises OSError."""
    try:
        return run_title(run.summary())
    except (FileNotFoundError, PermissionError, UnreadableJob):
        return run.run_id


def has_ended(run: RunFolder) -> bool:
    """Return True if the run exists and has ended.

    A device that an ended run holds is used by other work with its model, such as an evaluation.
    """
    return run.path.is_dir() and run.state() in ENDED


def describe_device_use(title: str, *, has_ended: bool) -> str:
    """Describe what occupies a device: “title”, the title of a run, or after its end “the use of “title”’s model”.

    A device is still in use after the end of a run while its model is used, such as for predictions.
    """
    return (tr("the use of “{title}”’s model") if has_ended else "“{title}”").format(title=title)


def make_resume_texts(*, has_checkpoint: bool) -> tuple[str, str]:
    """Return the title and the tip of the command that resumes an ended run. Without a checkpoint, it starts over."""
    if has_checkpoint:
        return tr("&Resume"), tr("Resume from its last checkpoint on the same devices")
    return tr("T&rain again"), tr("Train it from the beginning on the same devices, since it has no checkpoint")


def describe_activity(run: RunSummary) -> str:
    """Describe the last activity of an unfinished run, as in "training, epoch 3 of 5, step 345"."""
    parts = [_ACTIVITIES.get(run.phase, "starting")]
    if run.epoch is not None and run.step is not None:
        parts += [
            tr("epoch {epoch} of {epochs}").format(epoch=run.epoch, epochs=run.epochs),
            tr("step {step}").format(step=localized(run.step)),
        ]
    return ", ".join(parts)


def list_unread_runs(unread: Mapping[str, str]) -> str:
    """Return a line with the reason for each unreadable run, up to `MAX_UNREAD` lines."""
    lines = [
        tr("{run_id} can't be read: {why}.").format(run_id=run_id, why=reason)
        for run_id, reason in list(unread.items())[:MAX_UNREAD]
    ]
    remaining = len(unread) - len(lines)
    return "\n".join(
        [*lines, *([tr("{runs} more can't be read.").format(runs=counted(remaining, "run"))] if remaining else [])]
    )


def format_gpu_names(titles: Sequence[str]) -> str:
    """Format a list of GPUs, as in "GPU 0–3, 6" or "GPU 0 MIG 1, GPU 0 MIG 2"."""
    numbers = [title.removeprefix("GPU ") for title in titles]
    if not titles or not all(number.isdigit() for number in numbers):
        return ", ".join(titles)
    spans: list[list[int]] = []
    for number in sorted(int(number) for number in numbers):
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    # Two consecutive numbers are easier to read without a dash.
    parts = [f"{span[0]}–{span[-1]}" if len(span) > 2 else ", ".join(map(str, span)) for span in spans]
    return tr("GPU {parts}").format(parts=", ".join(parts))


def format_job_value(name: str, value: object) -> str:
    """Format the value of a job's field or option as the form shows it."""
    if value in (None, "", ()):
        is_automatic = name == "split_points" or (name in FIELDS and FIELDS[name].optional)
        return EMPTY.get(name, tr("automatic") if is_automatic else tr("none"))
    if isinstance(value, bool | int | float):
        return _format_number(value)
    if isinstance(value, tuple | list):
        items = tuple(map(str, value))
        return describe_devices(items) if name == "devices" else ", ".join(items)
    if name in PATHS:
        return Path(str(value)).name
    titles = {"model": model_title, "strategy": strategy_title}
    return titles[name](str(value)) if name in titles else CHOICES.get(str(value), str(value))


def _format_number(value: float) -> str:
    if isinstance(value, bool):
        return tr("yes") if value else tr("no")
    return localized(value) if isinstance(value, int) else significant(value)


def option_fields(job: Job) -> dict[str, Field]:
    """Return the options of the job's task, model and strategy, by name. Plug-ins must have been loaded."""
    return {field.name: field for field in load_catalogue().options_of(job.task, job.model.name, job.resolved_strategy)}
