"""What runs, models, strategies, measures, devices and the choices of a job's fields are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from engine.contract.catalogue import MeshDimension, load_catalogue
from engine.contract.devices import CPU, by_host, host_of, is_gpu, there
from engine.contract.hosts import SLURM
from engine.contract.job import FIELDS, Field, Job
from engine.runs.folder import RunFolder, RunSummary, UnreadableJob
from engine.runs.metrics import measure_words
from engine.system.plain_text import shortened
from gui.format import counted, localised

SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved_1f1b": "Interleaved 1F1B",
    "zb1p": "ZB1P (zero bubble)",
    "zbv": "ZBV (zero bubble)",
}
"""The titles of the pipeline schedules, by the job's names for them."""

CHOICES = {
    "sgd": "SGD",
    "adam": "Adam",
    "adamw": "AdamW",
    "none": "None",
    "step": "StepLR",
    "linear": "Linear",
    "poly": "Polynomial",
    "nadam": "NAdam",
    "radam": "RAdam",
    "rmsprop": "RMSprop",
    "adagrad": "Adagrad",
    "lamb": "LAMB",
    "fused": "Fused",
    "foreach": "Foreach",
    "for_loop": "For loop",
    "cosine": "Cosine",
    "cross_entropy": "Cross entropy",
    "bce": "Binary cross entropy",
    "focal": "Focal",
    "dice": "Dice",
    "cross_entropy_dice": "Cross entropy and Dice",
    "onecycle": "OneCycle",
    "light": "Light",
    "medium": "Medium",
    "strong": "Strong",
    "own": "Custom",
    "auto": "Auto",
    "on": "On",
    "off": "Off",
    "wait": "Wait for it",
    "fewer": "Continue with fewer",
    "balanced": "Balanced",
    **SCHEDULES,
    "equal": "Equal",
    "speed": "By measured speed",
    "when_free": "When free",
    "at_once": "At once",
    "stop": "Stop",
    "roll_back": "Roll back",
    "skip": "Skip the step",
}
"""The titles of what fields of a job may be set to; a value that is not here is its own title."""

EMPTY = {
    "image_size": "model default",
    "stages_per_device": "two",
    "clip_norm": "no limit",
    "ema_decay": "none",
    "patience": "trains all epochs",
    "progressive_from": "one size throughout",
    "dropout": "model default",
    "stochastic_depth": "model default",
    "ignore_value": "as found in the folder",
}
"""What an empty field means, where it is not "automatic"."""

MOST_UNREAD = 3
_DOING = {
    "starting": "starting",
    "fetching": "fetching its weights",
    "preparing": "preparing",
    "training": "training",
    "validating": "validating",
    "saving": "writing a checkpoint",
    "pausing": "pausing",
    "stopping": "stopping",
}


def short_title(title: str) -> str:
    """A measure's title within a line: "top-1", "mean IoU"; names that are abbreviations stay as they are, such as
    "IoU".
    """
    first = title.partition(" ")[0]
    written = title[:1].lower() + title[1:] if first[1:].islower() else title
    return written.replace(" accuracy", "")


def short_measure(task: str, name: str, value: float) -> str:
    """ "top-1 93.4 %"."""
    return short_title(measure_words(task, name, value, localised))


def changes_words(changes: Mapping[str, object]) -> str:
    """ "augmentation light, oversample rare classes on": fields of a job and what they are to be."""
    labels = ((FIELDS[name].label if name in FIELDS else name, value) for name, value in changes.items())
    on = {True: "on", False: "off"}
    return ", ".join(
        f"{label[:1].lower()}{label[1:]} {on[value] if isinstance(value, bool) else value}" for label, value in labels
    )


def devices_words(devices: tuple[str, ...], names: dict[str, str] | None = None) -> str:
    """ "CPU", "2 CPU workers", "2 × NVIDIA H200"; "2 GPUs" where `names` does not know them all; "CPU on ws1"."""
    machines = by_host(devices)
    return ", ".join(
        f"{_devices_words(tuple(own), None)} on {host.replace(SLURM, 'node ')}"
        if host
        else _devices_words(tuple(own), names)
        for host, own in machines.items()
    )


def _devices_words(devices: tuple[str, ...], names: dict[str, str] | None) -> str:
    """Those of one machine, as it calls them itself."""
    workers = devices.count(CPU)
    if workers:
        return "CPU" if workers == 1 else f"{workers} CPU workers"
    if names is None or not all(device in names for device in devices):
        return "GPU" if len(devices) == 1 else f"{len(devices)} GPUs"
    counts = Counter(names[device] for device in devices)
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counts.items())


def short_uuid(uuid: str) -> str:
    """ "GPU-1a2b3c4d…": enough to tell GPUs apart."""
    return f"{uuid[:12]}…" if len(uuid) > 13 else uuid


def rank_titles(devices: Sequence[str], names: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """What the device of each rank is called: "GPU 0" where `names` knows it, "CPU", "ws1 CPU", or "CPU worker 1"."""
    titles = []
    for rank, device in enumerate(devices):
        if not is_gpu(device) and devices.count(device) > 1:
            titles.append(f"{device_title(device)} worker {rank}")
        else:
            titles.append((names or {}).get(device) or device_title(device))
    return tuple(titles)


def device_title(device: str) -> str:
    """ "CPU", "ws1 CPU" or "ws1 GPU-1a2b3c4d…", for a device of which nothing is known but its id."""
    own = short_uuid(there(device)) if is_gpu(device) else "CPU"
    return f"{host_of(device)} {own}".strip()


@cache
def strategy_title(strategy: str) -> str:
    entry = load_catalogue().strategy(strategy)
    return entry.title if entry is not None else strategy


def recommended_strategy_title(*mesh: MeshDimension) -> str:
    """Return the title of the strategy recommended for a mesh of devices."""
    return load_catalogue().recommended_strategy(*mesh).title


@cache
def model_title(model: str) -> str:
    """The catalogue's title, or the file's name where the model is a file."""
    entry = load_catalogue().model(model)
    return entry.title if entry is not None else Path(model).name


def run_title(run: RunSummary) -> str:
    """The run's own name, else the dataset's with enough of the run's id to tell runs apart."""
    return run.name or f"{shortened(Path(run.dataset).name)} · {run.run_id[-4:]}"


def title_of(run: RunFolder) -> str:
    """The title of the run in a folder; its id where its job is gone, not ours to read, or damaged. Raises OSError."""
    try:
        return run_title(run.summary())
    except (FileNotFoundError, PermissionError, UnreadableJob):
        return run.run_id


def doing(run: RunSummary) -> str:
    """What a run that has not finished was at, by the end of its log: "training, epoch 3 of 5, step 345"."""
    parts = [_DOING.get(run.phase, "starting")]
    if run.epoch is not None and run.step is not None:
        parts += [f"epoch {run.epoch} of {run.epochs}", f"step {localised(run.step)}"]
    return ", ".join(parts)


def unread_words(unread: Mapping[str, str]) -> str:
    """Which runs cannot be read and why, a line each; at most `MOST_UNREAD` of them."""
    lines = [f"{run_id} can't be read: {why}." for run_id, why in list(unread.items())[:MOST_UNREAD]]
    left = len(unread) - len(lines)
    return "\n".join([*lines, *([f"{counted(left, 'run')} more can't be read."] if left else [])])


def gpu_names(titles: Sequence[str]) -> str:
    """ "GPU 0", "GPU 0–3, 6", and "GPU 0 MIG 1, GPU 0 MIG 2" for what is not a plain number."""
    numbers = [title.removeprefix("GPU ") for title in titles]
    if not titles or not all(number.isdigit() for number in numbers):
        return ", ".join(titles)
    spans: list[list[int]] = []
    for number in sorted(int(number) for number in numbers):
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    # Two in a row are read faster one by one.
    parts = [f"{span[0]}–{span[-1]}" if len(span) > 2 else ", ".join(map(str, span)) for span in spans]
    return f"GPU {', '.join(parts)}"


def option_fields(job: Job) -> dict[str, Field]:
    """The options that the job's task, model and strategy declare, by name. A plug-in's are known while it is
    installed.
    """
    return {field.name: field for field in load_catalogue().options_of(job.task, job.model.name, job.parallel.strategy)}
