"""Accuracy of the predicted gain from a second machine: `python tests/benchmarks/machines_efficiency.py` (as root).

In each of two network namespaces, a single-threaded CPU worker trains the small MNIST network on synthetic JPEGs. The
network between them is shaped to 10, 100 and 1,000 Mbit/s with 0.1 ms delay. The step time of a single machine is
measured with the full and half of the batch, while the other machine trains, because both share a processor. From these
times and the network's speed, `engine.advisor.advice.machines` predicts the efficiency of two machines, which is then
measured. All measurements take turns, and their medians are compared. The prediction should be within 15%.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.advisor.advice.machines import PAYLOAD, Step, last_bucket_bytes, predict
from engine.contract.advice import Network
from engine.contract.events import TimeSpent
from engine.models.mnist_cnn import MnistCnn
from engine.runs.folder import RunFolder
from tests.benchmarks.frame import describe_environment, start_machines
from tests.support.machines import measure_step_s
from tests.support.timed_runs import make_images

SIZE, BATCH, STEPS, WARM, ROUNDS, HELD_OUT = 28, 512, 12, 2, 3, 8
MBITS = (10, 100, 1000)
DELAY_S = 0.0001
AIM = 0.15
GRADIENTS = tuple(4 * parameter.numel() for parameter in MnistCnn(2, 3).parameters())


def main() -> int:
    one, half, shares = [], [], []
    together: dict[int, list[float]] = {mbit: [] for mbit in MBITS}
    carried: dict[int, list[float]] = {mbit: [] for mbit in MBITS}
    with start_machines() as pair:
        data = make_images(pair.folder / "data", STEPS * BATCH + HELD_OUT, SIZE, held_out=HELD_OUT, distinct=512)
        for _ in range(ROUNDS):
            alone = pair.run_trainings(*(flags(data, BATCH, "single", f"{host}:cpu") for host in pair.names))
            halves = pair.run_trainings(*(flags(data, BATCH // 2, "single", f"{host}:cpu") for host in pair.names))
            one += [measure_step_s(run, WARM) for run in alone]
            half += [measure_step_s(run, WARM) for run in halves]
            shares += map(compute_backward_fraction, halves)
            for mbit in MBITS:
                pair.limit_network(mbit, DELAY_S)
                carried[mbit].append(pair.measure_payload_rate(sum(GRADIENTS) // 2))
                (run,) = pair.run_trainings(flags(data, BATCH, "ddp", "node1:cpu,node2:cpu"))
                together[mbit].append(measure_step_s(run, WARM))
            pair.remove_network_limits()
    print(f"{describe_environment()}; {1000 * DELAY_S:g} ms each way")
    full_s, half_s = statistics.median(one), statistics.median(half)
    last = last_bucket_bytes(reversed(GRADIENTS))
    step = Step(full_s, max(0.0, 2 * half_s - full_s), sum(GRADIENTS), last, statistics.median(shares))
    print(
        f"one machine: {1000 * step.seconds:.0f} ms a step, {1000 * step.fixed_s:.0f} ms of it fixed, "
        f"{100 * step.backward_share:.0f}% of it backward; {step.sent_bytes:,} bytes sent, {last:,} of them at last"
    )
    met = True
    for mbit, seconds in together.items():
        rate = statistics.median(carried[mbit])
        network = Network(bits_per_second=rate / PAYLOAD, latency_s=DELAY_S)
        predicted = predict(step, BATCH, 2, network, total_s=1.0, steps=1).efficiency
        measured = full_s / statistics.median(seconds) / 2
        off = predicted / measured - 1
        met = met and abs(off) <= AIM
        print(
            f"{mbit} Mbit/s, which carry {rate / 1e6:.1f}: steps of {', '.join(f'{1000 * each:.0f}' for each in seconds)} ms; "
            f"efficiency predicted {predicted:.3f}, measured {measured:.3f}: {100 * off:+.0f}% (aim {100 * AIM:.0f}%)"
        )
    return 0 if met else 1


def compute_backward_fraction(run: RunFolder) -> float:
    """Return the time of the backward passes as a fraction of the time of forward and backward passes in a run."""
    times = [event.parts for event in run.events() if isinstance(event, TimeSpent) and event.step > WARM]
    forward, backward = (sum(parts.get(phase, 0.0) for parts in times) for phase in ("forward", "backward"))
    return backward / (forward + backward)


def flags(data: Path, batch: int, strategy: str, devices: str) -> Sequence[str]:
    return (
        *(str(data), "--model", "mnist_cnn", "--image-size", str(SIZE), "--batch-size", str(batch), "--recipe", ""),
        *(
            "--epochs",
            "1",
            "--strategy",
            strategy,
            "--devices",
            devices,
            "--loader-workers",
            "1",
            "--precision",
            "fp32",
        ),
        *("--memory-format", "contiguous", "--learning-rate", "0.01", "--predictions", "0", "--cpu-threads", "1"),
    )


if __name__ == "__main__":
    sys.exit(main())
