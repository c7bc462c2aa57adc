"""What several machines would bring: a model of a step from what one machine measured and a stated network. It is a
prediction; nothing here measures. Pure arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from engine.contract.advice import MachinesPrediction, Network
from engine.system.format import duration, size

BACKWARD = 2 / 3
"""The share of a step's compute that is the backward pass, beside which gradients are sent, where nobody has measured
it: it takes twice the multiplications of the forward pass."""
PAYLOAD = 1448 / 1538
"""The share of a stated rate that is left for what is sent: a full Ethernet frame takes 1,538 bytes on the wire, with
its preamble and gap (IEEE 802.3), of which TCP over IPv4 with timestamps (RFC 7323) leaves 1,448."""
FIRST_BUCKET_BYTES, BUCKET_BYTES = 1 << 20, 25 << 20
"""DDP closes a bucket of gradients at this size and sends it: the first one early, so that sending begins early."""


class Step(NamedTuple):
    """One machine's step: `seconds` of a whole batch, `fixed_s` of it whatever the batch, and the gradients'
    `sent_bytes`, `last_bytes` of them in DDP's last bucket, which is ready when the backward pass is over, so that
    nothing hides it. That pass is `backward_share` of the compute.
    """

    seconds: float
    fixed_s: float
    sent_bytes: int
    last_bytes: int
    backward_share: float = BACKWARD


def last_bucket(gradients: Iterable[int]) -> int:
    """The bytes of DDP's last bucket of `gradients`, whose bytes come in the order in which the backward pass makes
    them.
    """
    held, last, limit = 0, 0, FIRST_BUCKET_BYTES
    for nbytes in gradients:
        held += nbytes
        last = held
        if held >= limit:
            held, limit = 0, BUCKET_BYTES
    return last


def all_reduce_s(sent_bytes: int, machines: int, network: Network) -> float:
    """A ring's all-reduce among machines: 2 (n - 1) rounds, each of the n-th part of the bytes (Patarasuk and Yuan
    2009).
    """
    if machines == 1:
        return 0.0
    rounds = 2 * (machines - 1)
    return rounds * (network.latency_s + 8 * sent_bytes / machines / (PAYLOAD * network.bits_per_second))


def step_s(step: Step, machines: int, network: Network) -> float:
    """A step of the same batch, divided among `machines`: each computes its share and sends gradients beside the
    backward pass.
    """
    compute = step.fixed_s + (step.seconds - step.fixed_s) / machines
    sending = all_reduce_s(step.sent_bytes, machines, network)
    last = all_reduce_s(step.last_bytes, machines, network)
    return compute + max(last, sending - step.backward_share * compute)


def predict(
    step: Step, batch: int, machines: int, network: Network, *, total_s: float, steps: int
) -> MachinesPrediction:
    """What `machines` bring of a job of such a `batch` that takes one machine `total_s` with so many `steps` in all."""
    seconds = step_s(step, machines, network)
    efficiency = step.seconds / seconds / machines
    total = total_s - steps * (step.seconds - seconds)
    sending = all_reduce_s(step.sent_bytes, machines, network)
    sentence = (
        f"Predicted, not measured: {machines} machines train {batch / seconds:,.0f} images/s, {step.seconds / seconds:.2f}x "
        f"one of them ({100 * efficiency:.0f} % efficiency), and the job in {duration(total)}. Each step sends "
        f"{size(step.sent_bytes)} of gradients, {1000 * sending:,.1f} ms at {network.bits_per_second / 1e9:g} Gbit/s."
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
