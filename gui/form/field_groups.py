"""Where the form's fields stand, and how it names the devices chosen."""

from __future__ import annotations

from engine.contract.devices import CPU, is_gpu
from engine.contract.job import FIELDS, Group

TRIPLE = ("epochs", "batch_size", "learning_rate")
_TITLES: dict[Group, str] = {
    "training": "Training",
    "optimizer": "Optimizer",
    "schedule": "Schedule",
    "checkpoints": "Checkpoints",
    "faults": "Queue and faults",
    "data": "Data",
    "precision": "Precision and speed",
    "model": "Model",
    "strategy": "Strategy",
}
SECTIONS: dict[str, tuple[str, ...]] = {
    title: tuple(name for name, field in FIELDS.items() if field.group == group) for group, title in _TITLES.items()
}
"""The fields in collapsible sections, by the title of the section."""


def devices_in_words(devices: tuple[str, ...], names: dict[str, str]) -> str:
    """ "GPU 0, GPU 1" or "CPU, 2 workers"; `names` are what GPUs are called, by UUID."""
    if not devices:
        return "None selected; check one under Devices."
    gpus = [names.get(device, device) for device in devices if is_gpu(device)]
    workers = sum(device == CPU for device in devices)
    cpu = [] if not workers else ["CPU"] if workers == 1 else [f"CPU, {workers} workers"]
    return ", ".join(gpus + cpu)
