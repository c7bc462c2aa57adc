"""A run's log as TensorBoard's event files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from engine.contract.events import AnyEvent, DevicesSampled, RunStarted, StepMetrics, Validation
from engine.contract.job import job_to_toml
from engine.runs.folder import RunFolder

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_STEP = ("loss", "accuracy", "learning_rate", "images_per_second", "data_wait_s", "compute_s")
_DEVICE = ("utilization_percent", "memory_used_bytes", "power_w", "temperature_c")


class NoTensorBoard(Exception):  # noqa: N818  (it says what is missing)
    """The event files cannot be written; the text says why and what to do."""


def write(run: RunFolder, folder: Path) -> Path:
    """Writes the run's figures by step into the new folder FOLDER/RUN and returns it: train/…, validation/…, and of
    each device device/…. Raises NoTensorBoard.
    """
    target = folder / run.run_id
    if target.exists():
        raise NoTensorBoard(f"{target} already exists. Choose another folder, or move it away.")
    writer = _writer(target)
    step = 0
    with writer:
        for event in run.events():
            if isinstance(event, StepMetrics):
                step = event.step
            _add(writer, event, step)
    return target


def _writer(target: Path) -> SummaryWriter:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as error:
        raise NoTensorBoard(
            "Writing TensorBoard's event files needs its package, which is not installed. "
            "Install it with: pip install tensorboard"
        ) from error
    try:
        return SummaryWriter(str(target))
    except OSError as error:
        raise NoTensorBoard(f"{target} can't be created: {error.strerror or error}. Choose another folder.") from error


def _add(writer: SummaryWriter, event: AnyEvent, step: int) -> None:
    figures: dict[str, float | None] = {}
    match event:
        case RunStarted():
            writer.add_text("job", f"```\n{job_to_toml(event.job)}```", 0, event.time)
        case StepMetrics():
            figures = {f"train/{name}": getattr(event, name) for name in _STEP}
        case Validation():
            figures = {f"validation/{name}": value for name, value in event.measures.items()}
            step = event.step
        case DevicesSampled():
            figures = {
                f"device/{sample.device}/{name}": getattr(sample, name) for sample in event.samples for name in _DEVICE
            }
    for tag, value in figures.items():
        if value is not None:
            writer.add_scalar(tag, value, step, event.time)
