"""Idle job fields, which have no effect because of the values of other fields.

The form hides them, recipes do not set them, and the checks warn about those that are set anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from engine.contract.catalogue import MODEL_FIELDS, Catalogue, StrategyEntry
from engine.contract.devices import host_of, is_gpu
from engine.contract.job import FIELDS, Job, resolve_strategy
from engine.contract.job_fields import Need
from engine.contract.problems import Problem
from engine.system.format import listed

_DEPENDENT = {name: field.needs for name, field in FIELDS.items() if field.needs}
DECISIVE = {"task", "model", "strategy", "freeze_epochs", "epochs"}.union(
    *(need.fields for needs in _DEPENDENT.values() for need in needs)
)
"""Fields that determine, together with the devices, which other job fields have no effect."""

_VALUES_WITHOUT_EFFECT = {"compile": "off", "memory_format": "contiguous"}
"""Values that cause no warning in a field without effect, because the run behaves in that way anyway.

Only strategies that keep the full model on each device use these fields.
"""


class IdleReason(NamedTuple):
    """Reason why a field has no effect ("under Pipeline"), and a remedy ("choose …"), or "" if there is none."""

    why: str
    instead: str = ""


def find_idle_fields(values: Mapping[str, Any], catalogue: Catalogue) -> dict[str, IdleReason]:
    """Return the job fields that have no effect with these `values`, each with the reason.

    Fields that are not in `values` have their defaults.
    """
    found = find_idle_by_entries(values, catalogue)
    return found | find_idle_by_needs(values, found)


def find_idle_by_entries(values: Mapping[str, Any], catalogue: Catalogue) -> dict[str, IdleReason]:
    """Return the job fields that the task, the model, the strategy or the devices ignore, each with the reason.

    An unknown task, model or strategy ignores no field.
    """
    value = {name: values.get(name, FIELDS[name].default) for name in ("task", "model", "strategy", "devices")}
    found: dict[str, IdleReason] = {}
    task, model = catalogue.task(value["task"]), catalogue.model(value["model"])
    if task is not None:
        task_specific = {name for each in catalogue.tasks for name in each.fields}
        ignored = (task_specific - set(task.fields)) | set(task.without)
        found |= dict.fromkeys(ignored, IdleReason(f"for the task {task.title}"))
    if model is not None:
        is_used = {"encoder": model.encoder, "freeze_batchnorm": model.batch_norm}
        is_used |= {name: name in model.fields for name in MODEL_FIELDS}
        is_used |= dict.fromkeys(("loss", "class_weights"), not model.own_loss)
        found |= {name: IdleReason(f"with {model.title}") for name, used in is_used.items() if not used}
    strategy = catalogue.strategy(resolve_strategy(value["strategy"], value["devices"]))
    if strategy is not None:
        found |= _find_idle_by_strategy(strategy, catalogue.strategies)
    on_gpus = [is_gpu(device) for device in value["devices"]]
    if on_gpus and all(on_gpus):
        found["cpu_threads"] = IdleReason("on GPUs", "train on the CPU")
    if len(set(map(host_of, value["devices"]))) < 2 and sum(on_gpus) < 2:
        found["on_lost_device"] = IdleReason("on one machine with at most one GPU", "train on several GPUs or machines")
    if not any(on_gpus):  # the users of a GPU are known, those of a CPU are not
        found |= dict.fromkeys(("wait_for_others", "numa_binding"), IdleReason("on the CPU", "train on GPUs"))
    return found


@lru_cache
def _find_idle_by_strategy(strategy: StrategyEntry, strategies: tuple[StrategyEntry, ...]) -> dict[str, IdleReason]:
    """Return the job fields that `strategy` ignores although other `strategies` use them, each with the reason."""
    under, found = f"under {strategy.title}", {}
    strategy_specific = {name for each in strategies for name in each.fields}
    for name in strategy_specific - set(strategy.fields):
        users = [each.title for each in strategies if name in each.fields]
        found[name] = IdleReason(under, f"choose {' or '.join(users)}")
    if not strategy.keeps_full_model:
        able = [each.title for each in strategies if each.keeps_full_model]
        found |= dict.fromkeys(_VALUES_WITHOUT_EFFECT, IdleReason(under, f"choose {' or '.join(able)}"))
    return found


def find_idle_by_needs(values: Mapping[str, Any], idle: Collection[str] = ()) -> dict[str, IdleReason]:
    """Return the job fields that have no effect because of the values of other fields, each with the reason.

    Fields in `idle`, and those found to have no effect, are treated as if they had their default values.
    """
    found: dict[str, IdleReason] = {}

    def value(name: str) -> Any:
        default = FIELDS[name].default
        return default if name in idle or name in found else values.get(name, default)

    for name, needs in _DEPENDENT.items():  # in the order of `FIELDS`: a field comes after those that it needs
        unmet = next((need for need in needs if not need.is_met(value)), None)
        if unmet is not None:
            labels = " and ".join(FIELDS[each].label for each in unmet.fields)
            are = "is" if len(unmet.fields) == 1 else "are"
            current = _format_value(value(unmet.fields[0]))  # of several fields, all are empty, 0 or off
            found[name] = IdleReason(f"while {labels} {are} {current}", _describe_need(unmet))
    if value("freeze_epochs") >= value("epochs"):
        found["layer_decay"] = IdleReason("while the head alone is trained", "freeze the backbone for fewer epochs")
    return found


def _format_value(value: Any) -> str:
    if value is None:
        return "empty"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _describe_need(need: Need) -> str:
    """Return a clause that says how to meet a need: "set Schedule to cosine, linear or poly"."""
    labels = " or ".join(FIELDS[name].label for name in need.fields)
    return f"set {labels}" + (f" to {listed(need.values, 'or')}" if need.values else "")


def idle_field_warnings(job: Job, catalogue: Catalogue) -> list[Problem]:
    """Return a warning for each field that the job sets although it has no effect, in the order of the form."""
    values = job.values()
    idle = find_idle_fields(values, catalogue)
    return [
        Problem(name, f"{field.label} has no effect {idle[name].why}.", _describe_remedy(name, idle[name]), "warning")
        for name, field in FIELDS.items()
        if name in idle and values[name] not in (field.default, _VALUES_WITHOUT_EFFECT.get(name, field.default))
    ]


def _describe_remedy(name: str, idle: IdleReason) -> str:
    """Return a sentence that explains how to reset the ineffective field `name`, or how to give it an effect."""
    restore = FIELDS[name].back_to_default
    return f"{restore}, or {idle.instead}." if idle.instead else f"{restore}."
