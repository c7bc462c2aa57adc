"""Words for a queued run: its position, its devices, and the runs before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from engine.contract.devices import is_gpu
from engine.contract.events import Waiting
from engine.runs.folder import RunFolder
from engine.runs.notes import read_notes
from engine.system import paths
from engine.system.format import listed
from engine.system.plain_text import shortened
from gui.titles import gpu_names, model_title

_NAMED = 2
"""Up to this many runs before it are all named; of more, only the first."""


def run_name(run_id: str) -> str:
    """Read the name of a run: the given one, else its model and dataset."""
    run = RunFolder(paths.runs_folder() / run_id)
    job = run.job()
    given = read_notes(run.path).name
    if job is None:
        return given or run.run_id
    return shortened(
        (job.name if given is None else given) or f"{model_title(job.model.name)} on {Path(job.data.dataset).name}"
    )


def queue_message(
    waiting: Waiting, devices: Sequence[str], titles: Mapping[str, str], name_of: Callable[[str], str]
) -> str:
    """Return a message such as "2nd in the queue for GPU 0, behind ResNet-50 on flowers".

    Args:
        waiting: The run's position.
        devices: Devices of the run's job.
        titles: Titles of known GPUs, by UUID.
        name_of: Returns the name of a run by its id.
    """
    text = f"{_ordinal(waiting.position)} in the queue for {_devices(devices, titles)}"
    if waiting.held:
        return f"{text}, on hold until released"
    reasons = [f"behind {_runs(waiting.behind, name_of)}"] if waiting.behind else []
    return ", ".join([text, *reasons, *waiting.others])


def _ordinal(position: int) -> str:
    if position == 1:
        return "next"
    ending = "th" if position % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(position % 10, "th")
    return f"{position}{ending}"


def _devices(devices: Sequence[str], titles: Mapping[str, str]) -> str:
    gpus = [device for device in dict.fromkeys(devices) if is_gpu(device)]
    if not gpus:
        return "the CPU"
    if any(gpu not in titles for gpu in gpus):
        return "its GPU" if len(gpus) == 1 else f"its {len(gpus)} GPUs"
    return gpu_names([titles[gpu] for gpu in gpus])


def _runs(run_ids: Sequence[str], name_of: Callable[[str], str]) -> str:
    if len(run_ids) > _NAMED:
        return f"{name_of(run_ids[0])} and {len(run_ids) - 1} more runs"
    return listed(name_of(run_id) for run_id in run_ids)
