"""Speed of DDP on two machines, compared with torchrun: `python tests/benchmarks/machines_speed.py` (as root).

In each of two network namespaces, a single-threaded CPU worker trains resnet18 at 64 px on synthetic JPEGs. The network
between them has 1 Gbit/s and 1 ms delay. Footplate's run over ssh and torch's DDP tutorial take turns. The third epoch
of each is timed. The output shows images per second and their ratio, which should be at least 0.95.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from tests.benchmarks.frame import describe_environment, print_rates, start_machines
from tests.support import tutorials
from tests.support.machines import Machines, measure_step_s
from tests.support.sides import Setting
from tests.support.timed_runs import make_images

SIZE, BATCH, STEPS, ROUNDS, HELD_OUT = 64, 64, 12, 2, 8
WARM = 2 * STEPS
MBITS, DELAY_S = 1000, 0.001
AIM = 0.95


def measure_footplate(pair: Machines, data: Path) -> float:
    """Train with Footplate on both machines, and measure the images per second in the third epoch."""
    (run,) = pair.run_trainings(
        (
            str(data),
            *("--model", "resnet18", "--image-size", str(SIZE), "--batch-size", str(BATCH)),
            *("--recipe", "", "--strategy", "ddp", "--devices", "node1:cpu,node2:cpu", "--epochs", "3"),
            *("--loader-workers", "1", "--precision", "fp32", "--learning-rate", "0.01", "--cpu-threads", "1"),
        )
    )
    return BATCH / measure_step_s(run, WARM)


def measure_script(pair: Machines, data: Path) -> float:
    rendezvous = f"--nnodes 2 --nproc-per-node 1 --master-addr {pair.address('node1')} --master-port 29400"
    run = shlex.join([__file__, str(data)])
    running = [
        pair.start_on(name, f"GLOO_SOCKET_IFNAME=eth0 torchrun {rendezvous} --node-rank {number} {run}")
        for number, name in enumerate(pair.names)
    ]
    output = [each.communicate(timeout=900)[0] for each in running]
    if any(each.returncode for each in running):
        raise SystemExit("\n".join(output))
    return float(output[0].splitlines()[-1])


def run_script_rank(data: str) -> None:
    """Train one rank of PyTorch's DDP tutorial, in a process that torchrun has started. Rank 0 prints the speed."""
    setting = Setting(data, "resnet18", SIZE, BATCH, 2, STEPS * BATCH, 0.0)
    rank = int(os.environ["RANK"])
    rate = tutorials.measure_ddp_rate(setting, rank, "", world=2, warm=WARM + 1, steps=STEPS - 1)
    if rank == 0:
        print(rate)


def main() -> int:
    sides = {"Footplate": measure_footplate, "torchrun's script": measure_script}
    rates: dict[str, list[float]] = {name: [] for name in sides}
    with start_machines() as pair:
        data = make_images(pair.folder / "data", STEPS * BATCH + HELD_OUT, SIZE, held_out=HELD_OUT)
        pair.limit_network(MBITS, DELAY_S)
        for _ in range(ROUNDS):
            for side, measure in sides.items():
                rates[side].append(measure(pair, data))
    print(f"{describe_environment()}; {MBITS} Mbit/s, {1000 * DELAY_S:g} ms each way")
    medians = print_rates(rates)
    ratio = medians["Footplate"] / medians["torchrun's script"]
    print(f"Footplate over two machines, of torchrun's script: {ratio:.3f} (aim {AIM})")
    return 0 if ratio >= AIM else 1


if __name__ == "__main__":
    if "RANK" in os.environ:
        run_script_rank(sys.argv[1])
    else:
        sys.exit(main())
