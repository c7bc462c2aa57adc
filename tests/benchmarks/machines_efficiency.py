"""Whether the advisor predicts what a second machine brings: `python tests/benchmarks/machines_efficiency.py` (root).

The small network for MNIST at 28 px on made JPEGs, one CPU worker of one thread on each of two network namespaces. What one
machine needs for a step, of the whole batch and of half of it, and what two need for it at 10, 100 and 1,000 Mbit/s, with 1 ms each
way (none where the kernel has no netem), is measured in turn, and the median is taken. Prints the efficiency by `engine.advisor.advice.machines` from the former beside
the measured one. Aim: within 15 %.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine.advisor.advice.machines import Step, last_bucket, predict
from engine.contract.advice import Network
from engine.models.networks.mnist_cnn import MnistCnn
from tests.support.machines import Machines, why_not
from tests.support.timed_runs import make_images, where

SIZE, BATCH, STEPS, WARM, ROUNDS, HELD_OUT = 28, 512, 12, 2, 3, 8
MBITS = (10, 100, 1000)
DELAY_S = 0.001
AIM = 0.15


def main() -> int:
    if why := why_not():
        raise SystemExit(why)
    delay_s = 0.0
    one, half, several = [], [], {mbit: [] for mbit in MBITS}  # type: ignore[var-annotated]
    with tempfile.TemporaryDirectory(prefix="fpb") as name:
        machines = Machines(Path(name))
        try:
            data = make_images(
                machines.folder / "data", STEPS * BATCH + HELD_OUT, SIZE, held_out=HELD_OUT, distinct=512
            )
            for host in machines.names:
                machines.footplate("hosts", "add", host, "--no-check")
            for _ in range(ROUNDS):
                one.append(measure(machines, data, BATCH, "single", "node1:cpu"))
                half.append(measure(machines, data, BATCH // 2, "single", "node1:cpu"))
                for mbit, seconds in several.items():
                    delay_s = machines.slow(mbit, DELAY_S)
                    seconds.append(measure(machines, data, BATCH, "ddp", "node1:cpu,node2:cpu"))
        finally:
            machines.close()
    print(f"{where()}; {1000 * delay_s:g} ms each way")
    whole, part = statistics.median(one), statistics.median(half)
    gradients = [4 * parameter.numel() for parameter in MnistCnn(2, 3).parameters()]
    sent = sum(gradients)
    step = Step(whole, max(0.0, 2 * part - whole), sent, last_bucket(reversed(gradients)))
    print(
        f"one machine: {1000 * step.seconds:.0f} ms a step, {1000 * step.fixed_s:.0f} ms of it fixed; {sent:,} bytes sent"
    )
    met = True
    for mbit, seconds in several.items():
        network = Network(bits_per_second=mbit * 1e6, latency_s=delay_s or Network(1).latency_s)
        predicted = predict(step, BATCH, 2, network, total_s=1.0, steps=1).efficiency
        measured = whole / statistics.median(seconds) / 2
        off = predicted / measured - 1
        met = met and abs(off) <= AIM
        print(
            f"{mbit} Mbit/s: steps of {', '.join(f'{1000 * each:.0f}' for each in seconds)} ms; efficiency predicted "
            f"{predicted:.3f}, measured {measured:.3f}: {100 * off:+.0f} % (aim {100 * AIM:.0f} %)"
        )
    return 0 if met else 1


def measure(machines: Machines, data: Path, batch: int, strategy: str, devices: str) -> float:
    return machines.step_s(
        data,
        WARM,
        *(
            "--model",
            "mnist_cnn",
            "--image-size",
            str(SIZE),
            "--batch-size",
            str(batch),
            "--recipe",
            "",
            "--epochs",
            "1",
        ),
        *("--strategy", strategy, "--devices", devices, "--loader-workers", "1", "--precision", "fp32"),
        *("--memory-format", "contiguous", "--learning-rate", "0.01", "--predictions", "0", "--cpu-threads", "1"),
    )


if __name__ == "__main__":
    sys.exit(main())
