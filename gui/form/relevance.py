"""Which of the form's fields have an effect with what else is chosen there, and what stands against each strategy."""

from __future__ import annotations

from collections.abc import Sequence

from engine.contract.catalogue import Catalogue, DeviceKind, StrategyEntry
from engine.contract.devices import is_gpu

EVERYWHERE = frozenset({"activation_checkpointing"})
"""Fields of the strategy's group that every strategy goes by."""

QUEUE = ("wait_for_others",)
"""Fields of the queue that do not always have one."""


def without_queue(devices: Sequence[str], start: str) -> frozenset[str]:
    """Those of `QUEUE` that change nothing: who is on a GPU can be told, but not of a CPU, which everybody is on; and a
    run that starts at once waits for nobody."""
    return frozenset() if start == "when_free" and any(map(is_gpu, devices)) else frozenset(QUEUE)


AUGMENTATION = ("transforms", "mirror")
"""Fields of the augmentation that do not always have an effect."""


def without_augmentation(augmentation: str) -> frozenset[str]:
    """Those of `AUGMENTATION` that change nothing: the list is that of one's own, and what is not augmented is not mirrored."""
    if augmentation == "own":
        return frozenset()
    return frozenset(AUGMENTATION if augmentation == "none" else ("transforms",))


def of_tasks(catalogue: Catalogue) -> tuple[str, ...]:
    """The fields that not all tasks go by."""
    return tuple(dict.fromkeys(name for task in catalogue.tasks for name in (*task.fields, *task.without)))


def without_effect(names: Sequence[str], strategy: StrategyEntry | None, schedule: str) -> frozenset[str]:
    """Those of `names`, fields of the strategy's group, that change nothing under `strategy` and its `schedule`.

    Where the strategy is not known, none: what is in the job stays in sight.
    """
    if strategy is None:
        return frozenset()
    used = EVERYWHERE | set(strategy.fields)
    if schedule != "interleaved_1f1b":
        used -= {"stages_per_device"}
    return frozenset(names) - used


def kind_marks(catalogue: Catalogue, devices: Sequence[str]) -> dict[str, str]:
    """The strategies that cannot run on such devices at all, with why."""
    kinds: set[DeviceKind] = {"cuda" if is_gpu(device) else "cpu" for device in devices}
    return {
        entry.id: "CUDA GPUs only" if entry.device_kinds == ("cuda",) else "CPU only"
        for entry in catalogue.strategies
        if kinds and not kinds <= set(entry.device_kinds)
    }


def marks(catalogue: Catalogue, devices: Sequence[str], model: str) -> dict[str, str]:
    """What stands against each strategy for now: kinds and number of the devices, or the model."""
    found = {}
    entry = catalogue.model(model)
    for strategy in catalogue.strategies:
        if strategy.max_devices is not None and len(devices) > strategy.max_devices:
            found[strategy.id] = "one device only"
        elif strategy.cuts_model and entry is not None and entry.uncuttable:
            found[strategy.id] = f"{entry.title} cannot be cut"
        elif len(devices) < strategy.min_devices:
            found[strategy.id] = f"needs {strategy.min_devices} devices"
    return found | kind_marks(catalogue, devices)
