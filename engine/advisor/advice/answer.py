"""Answer of the advisor, with a ranked table, explanations, predictions for several machines, and a cache."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from engine.advisor.advice.contenders import CONFIDENCE, Contender, rank
from engine.advisor.advice.machines import Step, predict
from engine.advisor.advice.setups import describe_devices
from engine.advisor.advice.state import AdviceState
from engine.checks.findings.ranking import LONG_WAIT, explain_failure, explain_ranking, list_remedies
from engine.contract.advice import Advice, AdviceRequest, Candidate, MachinesPrediction, Network
from engine.contract.catalogue import StrategyEntry
from engine.contract.job import FIELDS
from engine.supervisor.environment import describe_environment
from engine.system import paths
from engine.system.files import read_file
from engine.system.format import counted

_IRRELEVANT = {
    "name", "recipe", "epochs", "learning_rate", "best_by", "class_weights", "label_smoothing", "clip_norm", "seed",
    "patience", "pretrained", "weights_file", "resume_from", "weight_decay", "momentum", "beta2", "layer_decay",
    "head_rate", "decay_norms", "ema_ramp", "model_file_sha256",
}  # fmt: skip
"""Names of fields that affect neither the computation of a step nor its memory."""
_FORMAT = 2
"""Version of the saved answers. A change makes older answers invalid."""


def read_versions() -> dict[str, str]:
    """Return the host and the versions of the software. A cached answer is only valid while they stay the same."""
    facts = describe_environment(None)
    return {name: facts[name] for name in sorted(facts) if name not in ("cpu", "cores")}


def read_hardware() -> tuple[str, ...]:
    """Return the hardware for which a cached answer is valid: one text with the host's processor and core count."""
    facts = describe_environment(None)
    return (f"{facts['cpu']}, {counted(int(facts['cores']), 'core')}",)


class CachedAdvice(msgspec.Struct, frozen=True):
    """Answer in the cache, with facts that are needed to reuse it.

    `seconds` is the time that was allowed for the trials, and `step` the fastest measured step, for predictions for
    several machines.
    """

    answer: Advice
    seconds: float
    step: Step | None


def load_cached(request: AdviceRequest) -> CachedAdvice | None:
    """Return the cached answer to `request`, or None if there is none.

    A cached answer whose trials ended before the ranking was certain is not returned if `request` allows more time.
    """
    try:
        cached = msgspec.json.decode(read_file(_get_cache_path(request)), type=CachedAdvice)
    except (OSError, msgspec.DecodeError):
        return None
    return cached if cached.answer.ended_by == "settled" or request.seconds <= cached.seconds else None


def save_cached(request: AdviceRequest, advice: CachedAdvice) -> None:
    """Save an answer in the cache. If the cache folder can't be written, do nothing."""
    with suppress(OSError):
        file = _get_cache_path(request)
        paths.make_private_folder(file.parent)
        paths.write_atomically(file, msgspec.json.encode(advice))


def _get_cache_path(request: AdviceRequest) -> Path:
    """Return the path of the cached answer, which contains a hash of all that affects the answer, with the hardware."""
    job = request.job
    relevant = {
        name: job.value(name)
        for name, field in FIELDS.items()
        if name not in _IRRELEVANT and field.group not in ("schedule", "checkpoints", "faults")
    }
    # The number of epochs is irrelevant, except for which parts of the model are trained.
    is_unfrozen, is_frozen_throughout = job.unfreezes_backbone, job.model.freeze_epochs >= job.training.epochs
    trained_parts = (is_unfrozen, is_frozen_throughout)
    key = msgspec.json.encode(
        [_FORMAT, relevant, trained_parts, job.options, job.model.model_file_sha256, read_versions(), read_hardware()]
    )
    return paths.cache_folder() / "advice" / f"{hashlib.sha256(key).hexdigest()[:32]}.json"


FASTER_LINK = 4
"""Assumed ratio of the speed of NVLink to that of PCIe, used to predict the effect of faster links."""
DEFAULT_NETWORK = Network(10e9)


def adapt_cached(request: AdviceRequest, cached: CachedAdvice) -> Advice:
    """Return the cached advice with its predictions adapted to the requested number of epochs and machines."""
    table = tuple(_scale_to_epochs(row, request.job.training.epochs) for row in cached.answer.table)
    machines = _predict_machines(request, table[0], cached.step) if table else ()
    return msgspec.structs.replace(cached.answer, table=table, machines=machines, is_cached=True)


def _scale_to_epochs(row: Candidate, epochs: int) -> Candidate:
    """Return a copy of a candidate whose total time is that for `epochs` epochs."""
    if row.time is None:
        return row
    total_s = row.time.start_s + epochs * (row.time.steps * row.time.step_s + row.time.validation_s)
    return msgspec.structs.replace(row, time=msgspec.structs.replace(row.time, epochs=epochs, total_s=total_s))


def create_answer(state: AdviceState) -> Advice:
    """Create the advisor's answer from the measurements in `state`.

    If the state of the fastest contender is "slower", because it was dropped before the others turned out to be slower
    still, its state is set to "measured".
    """
    tried = rank(state.contenders)
    fastest = tried[0] if tried and tried[0].steps else None
    fits = fastest is not None
    if fastest is not None and fastest.state == "slower":
        fastest.state, fastest.why = "measured", ""
    table, left_out = tuple(map(state.create_row, tried)), state.group_left_out()
    if fits:
        sentence = explain_ranking(state.request.job, state.catalogue, table)
    else:
        sentence = explain_failure(table, left_out, is_stopped=state.ended_by == "stopped")
    return Advice(
        table=table,
        fits=fits,
        sentence=sentence,
        remedies=list_remedies(table) if _exceeds_one_device(state) else (),
        what_would_change=tuple(_predict_changes(state, tried)) if fits else (),
        considered=state.considered,
        left_out=left_out,
        memory_by=state.memory_by,
        ended_by=state.ended_by,
        confidence=CONFIDENCE,
        took_s=state.took_s,
        measured_at=time.time(),
        hardware=read_hardware(),
        versions=read_versions(),
        machines=_predict_machines(state.request, table[0], state.machine_step) if fits else (),
    )


def _exceeds_one_device(state: AdviceState) -> bool:
    """Return True if the requested job does not fit in the memory of one device."""
    tried = [each.setup for each in state.contenders if each.state == "too_large"]
    untried = [each.setup for each in state.left_out if each.kind == "memory"]
    return any(len(setup.job.parallel.devices) == 1 and not setup.saves_memory for setup in (*tried, *untried))


def _predict_changes(state: AdviceState, tried: list[Contender]) -> Iterator[str]:
    """Yield sentences about changes that would make another candidate the fastest.

    The changes are predicted from the measured parts of the steps. `tried` has the tried contenders, fastest first.
    """
    costs, best = state.costs, tried[0]

    def find_fastest(strategy: StrategyEntry) -> Contender | None:
        """Return the fastest measured base setup with this strategy, or None if there is none."""
        measured = (each for each in tried if each.steps and not each.setup.is_variant)
        return next((each for each in measured if each.setup.job.resolved_strategy == strategy.id), None)

    several = find_fastest(state.catalogue.recommended_strategy("replicate"))
    alone = find_fastest(state.catalogue.recommended_strategy())
    if costs is None or several is None or alone is None:
        return
    # The model of a step: fixed cost, cost per image divided by the number of devices, and communication.
    count, batch = len(several.setup.job.parallel.devices), several.setup.job.training.batch_size
    per_image_s = max(0.0, alone.step_s - costs.fixed_s) / batch
    communication_s = several.step_s - costs.fixed_s - per_image_s * batch / count
    saved_per_image_s = per_image_s * (1 - 1 / count)
    if communication_s <= 0 or not saved_per_image_s:
        return
    break_even = communication_s / saved_per_image_s  # batch size for which several devices are as fast as one
    rounded = f"{float(f'{break_even:.2g}'):,.0f}"  # to two significant digits
    devices = describe_devices(several.setup.job)
    on_one_device = len(best.setup.job.parallel.devices) == 1
    # The prediction is not reliable for batches that are much larger than those measured.
    if on_one_device and batch < break_even < 64 * batch:
        yield f"From a batch of about {rounded} on, {devices} would be faster than one (predicted)."
    elif not on_one_device and 2 < break_even < batch:
        yield f"Below a batch of about {rounded}, one device would be as fast as {devices} (predicted)."
    if communication_s > LONG_WAIT * several.step_s:
        faster = batch / (several.step_s - communication_s * (1 - 1 / FASTER_LINK))
        yield (
            f"With links between the devices {FASTER_LINK} times as fast, such as NVLink instead of PCIe, DDP would "
            f"reach about {faster:,.0f} images/s (predicted)."
        )
    if best.wait_s > LONG_WAIT * best.step_s:
        yield "With more loader workers, or smaller files, the step would wait less for images."


def _predict_machines(request: AdviceRequest, first: Candidate, step: Step | None) -> tuple[MachinesPrediction, ...]:
    """Predict the speed on the requested number of machines, and on each smaller power of two machines."""
    if request.machines < 2 or step is None or first.time is None:
        return ()
    counts = {request.machines, *(2**power for power in range(1, request.machines.bit_length()))}
    batch_size, network, time_alone = request.job.training.batch_size, request.network or DEFAULT_NETWORK, first.time
    steps = time_alone.epochs * time_alone.steps
    return tuple(
        predict(step, batch_size, count, network, total_s=time_alone.total_s, steps=steps) for count in sorted(counts)
    )
