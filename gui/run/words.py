"""How a run's figures are written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from engine.contract.catalogue import load_catalogue
from engine.contract.devices import CPU
from engine.contract.job import FIELDS
from engine.contract.measures import measure_words

SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved_1f1b": "Interleaved 1F1B",
    "zb1p": "ZB1P (zero bubble)",
    "zbv": "ZBV (zero bubble)",
}
"""The titles of the pipeline schedules, by the job's names for them."""


def duration(seconds: float) -> str:
    """ "8 s", "3:12 min" or "2:05:40 h"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02} h"


def short_title(title: str) -> str:
    """A measure's title within a line: "top-1", "mean IoU"; names that are abbreviations stay as they are, such as "IoU"."""
    first = title.partition(" ")[0]
    written = title[:1].lower() + title[1:] if first[1:].islower() else title
    return written.replace(" accuracy", "")


def short_measure(task: str, name: str, value: float) -> str:
    """ "top-1 93.4 %"."""
    return short_title(measure_words(task, name, value))


def changes_words(changes: Mapping[str, object]) -> str:
    """ "augmentation light, oversample rare classes on": fields of a job and what they are to be."""
    labels = ((FIELDS[name].label if name in FIELDS else name, value) for name, value in changes.items())
    on = {True: "on", False: "off"}
    return ", ".join(
        f"{label[:1].lower()}{label[1:]} {on[value] if isinstance(value, bool) else value}" for label, value in labels
    )


def devices_words(devices: tuple[str, ...], names: dict[str, str] | None = None) -> str:
    """ "CPU", "2 CPU workers", "2 × NVIDIA H200"; "2 GPUs" where `names` does not know them all."""
    workers = devices.count(CPU)
    if workers:
        return "CPU" if workers == 1 else f"{workers} CPU workers"
    if names is None or not all(device in names for device in devices):
        return "GPU" if len(devices) == 1 else f"{len(devices)} GPUs"
    counts = Counter(names[device] for device in devices)
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counts.items())


def strategy_title(strategy: str) -> str:
    entry = load_catalogue().strategy(strategy)
    return entry.title if entry is not None else strategy


def model_title(model: str) -> str:
    """The catalogue's title, or the file's name where the model is a file."""
    entry = load_catalogue().model(model)
    return entry.title if entry is not None else Path(model).name
