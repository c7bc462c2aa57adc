"""Answers of before, which hold for the same work on the same devices with the same versions."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

import msgspec

from engine.advisor.advice.machines import Step
from engine.contract.advice import Advice, AdviceOrder
from engine.contract.job import FIELDS
from engine.supervisor.environment import describe
from engine.system import paths

_FREE = {"name", "recipe", "epochs", "learning_rate", "best_by", "class_weights", "label_smoothing", "clip_norm", "seed",
    "patience", "pretrained", "weights_file", "resume_from", "weight_decay", "momentum", "beta2", "layer_decay", "head_rate",
    "decay_norms", "ema_ramp", "model_file_sha256",
}  # fmt: skip
"""Fields that change neither what a step computes nor what it holds."""
_KEPT_FORM = 2


def versions() -> dict[str, str]:
    """The versions and the host that an answer holds for."""
    facts = describe(None)
    return {name: facts[name] for name in sorted(facts) if name not in ("cpu", "cores")}


def hardware() -> tuple[str, ...]:
    """The host's processor, whose cores are the CPU workers'."""
    facts = describe(None)
    return (f"{facts['cpu']}, {facts['cores']} cores",)


class Kept(msgspec.Struct, frozen=True):
    """An answer, the time that its trials were given, and its first one's step, from which follows what several
    machines would bring.
    """

    answer: Advice
    seconds: float
    step: Step | None


def recall(order: AdviceOrder) -> Kept | None:
    """The kept answer to an order alike; None where there is none, it cannot be read, or the order gives the trials
    more time and that was up.
    """
    try:
        found = msgspec.json.decode(_file(order).read_bytes(), type=Kept)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.answer.ended_by == "settled" or order.seconds <= found.seconds else None


def keep(order: AdviceOrder, found: Kept) -> None:
    """Keeps an answer, where the cache's folder can be written."""
    with suppress(OSError):
        file = _file(order)
        paths.private_folder(file.parent)
        paths.write_atomically(file, msgspec.json.encode(found))


def _file(order: AdviceOrder) -> Path:
    job = order.job
    same = {
        name: getattr(job, name)
        for name, about in FIELDS.items()
        if name not in _FREE and about.group not in ("schedule", "checkpoints", "faults")
    }
    trains = job.unfreezes, job.freeze_epochs >= job.epochs
    key = msgspec.json.encode([_KEPT_FORM, same, trains, job.options, job.model_file_sha256, versions(), hardware()])
    return paths.cache_folder() / "advice" / f"{hashlib.sha256(key).hexdigest()[:32]}.json"
