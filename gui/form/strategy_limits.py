"""Reasons why strategies are unavailable, as the form lists them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from engine.contract.catalogue import Catalogue, DeviceKind
from engine.contract.devices import host_of, is_gpu


def kind_marks(catalogue: Catalogue, devices: Sequence[str]) -> dict[str, str]:
    """The strategies that cannot run on such devices at all, with why."""
    kinds: set[DeviceKind] = {"cuda" if is_gpu(device) else "cpu" for device in devices}
    return {
        entry.id: "CUDA GPUs only" if entry.device_kinds == ("cuda",) else "CPU only"
        for entry in catalogue.strategies
        if kinds and not kinds <= set(entry.device_kinds)
    }


def marks(catalogue: Catalogue, devices: Sequence[str], model: str) -> dict[str, str]:
    """The reason why each strategy is unavailable: the devices' kind or number, or the model."""
    found = {}
    entry = catalogue.model(model)
    for strategy in catalogue.strategies:
        if strategy.max_devices is not None and len(devices) > strategy.max_devices:
            found[strategy.id] = "one device only"
        elif strategy.cuts_model and entry is not None and entry.uncuttable:
            found[strategy.id] = f"{entry.title} can't be cut"
        elif strategy.splits_layers and entry is not None and not entry.tensor_parallel:
            found[strategy.id] = f"{entry.title} has no layers to divide"
        elif not strategy.process_per_device and len(set(map(host_of, devices))) > 1:
            found[strategy.id] = "one machine only"
        elif len(devices) < strategy.min_devices:
            found[strategy.id] = f"needs {strategy.min_devices} devices"
    return found | kind_marks(catalogue, devices)


def words(catalogue: Catalogue, chosen: str, marks: Mapping[str, str]) -> str:
    """What the strategy chosen does, and why how many others are not to be had."""
    entry = catalogue.strategy(chosen)
    others = Counter(mark for strategy, mark in marks.items() if strategy != chosen)
    why = [f"{count} ({mark})" for mark, count in others.most_common()]
    unavailable = f"Not available: {', '.join(why)}." if why else ""
    return " ".join(filter(None, (entry.summary if entry is not None else "", unavailable)))
