"""Cache of answers, valid for the same work on the same devices with the same versions."""

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
from engine.system.files import read_file

_IRRELEVANT = {
    "name", "recipe", "epochs", "learning_rate", "best_by", "class_weights", "label_smoothing", "clip_norm", "seed",
    "patience", "pretrained", "weights_file", "resume_from", "weight_decay", "momentum", "beta2", "layer_decay",
    "head_rate", "decay_norms", "ema_ramp", "model_file_sha256",
}  # fmt: skip
"""Fields that change neither the computation of a step nor its memory."""
_FORMAT = 2


def versions() -> dict[str, str]:
    """Return the software versions and the host that an answer is valid for."""
    facts = describe(None)
    return {name: facts[name] for name in sorted(facts) if name not in ("cpu", "cores")}


def hardware() -> tuple[str, ...]:
    """Return the host's processor."""
    facts = describe(None)
    return (f"{facts['cpu']}, {facts['cores']} cores",)


class CachedAdvice(msgspec.Struct, frozen=True):
    """An answer with the time allowed for its trials, and the fastest step for predictions of other machines."""

    answer: Advice
    seconds: float
    step: Step | None


def load(order: AdviceOrder) -> CachedAdvice | None:
    """Return the cached answer; None if there is none, or it ran out of time and `order` allows more."""
    try:
        cached = msgspec.json.decode(read_file(_file(order)), type=CachedAdvice)
    except (OSError, msgspec.DecodeError):
        return None
    return cached if cached.answer.ended_by == "settled" or order.seconds <= cached.seconds else None


def save(order: AdviceOrder, advice: CachedAdvice) -> None:
    """Save an answer if the cache folder is writable."""
    with suppress(OSError):
        file = _file(order)
        paths.private_folder(file.parent)
        paths.write_atomically(file, msgspec.json.encode(advice))


def _file(order: AdviceOrder) -> Path:
    job = order.job
    relevant = {
        name: job.value(name)
        for name, about in FIELDS.items()
        if name not in _IRRELEVANT and about.group not in ("schedule", "checkpoints", "faults")
    }
    trained = job.unfreezes, job.model.freeze_epochs >= job.training.epochs
    key = msgspec.json.encode(
        [_FORMAT, relevant, trained, job.options, job.model.model_file_sha256, versions(), hardware()]
    )
    return paths.cache_folder() / "advice" / f"{hashlib.sha256(key).hexdigest()[:32]}.json"
