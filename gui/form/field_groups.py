"""Where the form's fields stand, and how it names the devices chosen."""

from __future__ import annotations

from engine.contract.devices import by_host, device_key, is_gpu
from engine.contract.job import FIELDS, Group
from gui.titles import device_title

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
    """ "GPU 0, GPU 1" or "CPU, 2 workers, ws1 CPU"; `names` are what GPUs are called, those of other machines as jobs
    name them.
    """
    if not devices:
        return "None selected; check one under Devices."
    words = []
    for host, own in by_host(devices).items():
        gpus = [device_key(host, device) for device in own if is_gpu(device)]
        words += [names.get(gpu, device_title(gpu)) for gpu in gpus]
        if workers := len(own) - len(gpus):
            words.append(f"{host} CPU".strip() + (f", {workers} workers" if workers > 1 else ""))
    return ", ".join(words)
