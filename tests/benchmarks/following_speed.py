"""Delay of a run's events on another machine: `python tests/benchmarks/following_speed.py` (as root).

Network namespaces simulate two machines. On the node, which has an ssh server, a CPU worker trains on the sample dataset.
The head, as the user's machine, follows the run through ssh. A client on the node and a client of the head's follower
receive the run's events at the same time, through the sockets that windows use, with the same clock. The output shows
the delays of both clients. The client of the follower may be at most 100 ms slower.
"""

from __future__ import annotations

import json
import select
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

from engine.contract.events import Event
from engine.runs.connection import RunConnection
from engine.runs.folder import RunFolder
from engine.system.paths import sample_dataset
from tests.benchmarks.frame import describe_environment, start_machines
from tests.support.machines import ROOT, Machines
from tests.support.waiting import wait_until

SECONDS = 30.0
AIM_S = 0.1
NODE = "node1"


def listen(folder: str, until_s: float) -> dict[int, float]:
    """Receive the events of the run in `folder` until the time `until_s`.

    Returns the delay in seconds between each event and its arrival, by the event's number.
    """
    run = RunFolder(folder)
    last = run.last_event()
    found = {}
    with RunConnection(run, last.n + 1 if last is not None else 1) as connection:
        while time.time() < until_s:
            select.select([connection], [], [], 0.1)
            for message in connection.receive():
                if isinstance(message, Event):
                    found[message.n] = time.time() - message.time
    return found


def measure(pair: Machines, run_id: str, folder: str) -> dict[str, list[float]]:
    client = shlex.join([sys.executable, str(Path(__file__).resolve()), "--client"])
    until_s = str(time.time() + SECONDS)
    node_client = pair.start_on(NODE, f"{client} {pair.home_of(NODE)}/runs/{run_id} {until_s}")
    head_client = subprocess.run(
        [*shlex.split(client), folder, until_s],
        env=pair.environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    node_output = node_client.communicate(timeout=60)[0]
    on_node, on_head = (
        {int(n): age for n, age in json.loads(text).items()} for text in (node_output, head_client.stdout)
    )
    both = sorted(on_node.keys() & on_head.keys())
    return {
        "there": [on_node[n] for n in both],
        "here": [on_head[n] for n in both],
        "added": [on_head[n] - on_node[n] for n in both],
    }


def main() -> int:
    with start_machines(NODE) as pair:
        train = f"footplate train {sample_dataset()} --model mnist_cnn --devices cpu --epochs 10000 --detach"
        run_id = pair.start_on(NODE, train).communicate(timeout=60)[0].split()[-1]
        log = RunFolder(pair.home_of(NODE) / "runs" / run_id).events_file
        wait_until(lambda: log.exists() and b'"step"' in log.read_bytes(), "the first step", 120)
        follower = subprocess.Popen(
            ["ip", "netns", "exec", pair.space("head"), sys.executable, "-m", "engine.machines.follower", NODE, run_id],
            env=pair.environment(), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert follower.stdin is not None
        assert follower.stdout is not None
        folder = json.loads(follower.stdout.readline())["folder"]
        print(describe_environment())
        found = measure(pair, run_id, folder)
        follower.stdin.close()
        follower.wait(10)
    print(f"{len(found['added'])} events:")
    for side, ages in found.items():
        ms = sorted(1000 * age for age in ages)
        print(f"  {side}: median {statistics.median(ms):.1f} ms, 95% {ms[int(0.95 * len(ms))]:.1f}, most {ms[-1]:.1f}")
    return 0 if statistics.median(found["added"]) < AIM_S else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--client"]:
        print(json.dumps(listen(sys.argv[2], float(sys.argv[3]))))
    else:
        sys.exit(main())
