"""Prediction of the step time on several machines, from a step measured on one machine and the speed of the network."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from engine.contract.advice import MachinesPrediction, Network
from engine.system.format import duration, percent, size

BACKWARD = 2 / 3
"""Assumed duration of the backward pass as a fraction of the computing time, if it was not measured.

The backward pass has twice as many operations as the forward pass.
"""
PAYLOAD = 1448 / 1538
"""Fraction of a network's stated data rate that is available for payload.

A full Ethernet frame takes 1,538 bytes on the wire with preamble and gap (IEEE 802.3). TCP over IPv4 with timestamps
(RFC 7323) leaves 1,448 of them.
"""
FIRST_BUCKET_BYTES, BUCKET_BYTES = 1 << 20, 25 << 20
"""Sizes of DDP's first bucket and of its other buckets. The first one is small, so that sending starts early."""


class Step(NamedTuple):
    """Step with the full batch, as measured on one machine."""

    seconds: float
    fixed_s: float
    """Part of `seconds` that does not depend on the batch size."""
    sent_bytes: int
    """Size of all gradients in bytes."""
    last_bytes: int
    """Size of DDP's last bucket in bytes. Its transfer can't overlap with the backward pass."""
    backward_share: float = BACKWARD
    """Duration of the backward pass as a fraction of the computing time."""


def last_bucket_bytes(gradients: Iterable[int]) -> int:
    """Return the size of DDP's last bucket in bytes.

    `gradients` are the sizes of the gradients in the order of the backward pass.
    """
    bucket_bytes, last, limit = 0, 0, FIRST_BUCKET_BYTES
    for nbytes in gradients:
        bucket_bytes += nbytes
        last = bucket_bytes
        if bucket_bytes >= limit:
            bucket_bytes, limit = 0, BUCKET_BYTES
    return last


def all_reduce_s(sent_bytes: int, machines: int, network: Network) -> float:
    """Return the duration of a ring all-reduce of `sent_bytes` bytes, in seconds.

    With n machines, it consists of 2 (n - 1) rounds with 1/n of the bytes each (Patarasuk and Yuan 2009).
    """
    if machines == 1:
        return 0.0
    rounds = 2 * (machines - 1)
    return rounds * (network.latency_s + 8 * sent_bytes / machines / (PAYLOAD * network.bits_per_second))


def step_s(step: Step, machines: int, network: Network) -> float:
    """Return the duration in seconds of `step` if its batch is divided among several machines.

    Gradients are assumed to be sent during the backward pass, except those in DDP's last bucket.
    """
    compute = step.fixed_s + (step.seconds - step.fixed_s) / machines
    sending = all_reduce_s(step.sent_bytes, machines, network)
    last = all_reduce_s(step.last_bytes, machines, network)
    return compute + max(last, sending - step.backward_share * compute)


def predict(
    step: Step, batch: int, machines: int, network: Network, *, total_s: float, steps: int
) -> MachinesPrediction:
    """Predict the speed of a job on several machines from a `step` measured on one.

    `batch` is the global batch size. On one machine, the complete job takes `total_s` for its `steps` steps.
    """
    seconds = step_s(step, machines, network)
    efficiency = step.seconds / seconds / machines
    total = total_s - steps * (step.seconds - seconds)
    sending = all_reduce_s(step.sent_bytes, machines, network)
    sentence = (
        f"Predicted, not measured: {machines} machines train {batch / seconds:,.0f} images/s, "
        f"{step.seconds / seconds:.2f}x one of them ({percent(efficiency)} efficiency), and the job in "
        f"{duration(total)}. Each step sends {size(step.sent_bytes)} of gradients, {1000 * sending:,.1f} ms at "
        f"{network.bits_per_second / 1e9:g} Gbit/s."
    )
    return MachinesPrediction(
        machines=machines,
        images_per_second=batch / seconds,
        efficiency=efficiency,
        total_s=total,
        sent_bytes=step.sent_bytes,
        sending_s=sending,
        sentence=sentence,
    )
