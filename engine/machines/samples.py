"""What a run's devices on this machine do, once a second, for the run's log."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from engine.contract.devices import Snapshot, device_key, host_of, is_gpu
from engine.contract.nodes import NodeOrder, Sampled
from engine.supervisor.admission import CPU_SAMPLER_DELAY_S
from engine.supervisor.sampling import INTERVAL_S, samples_of
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED

_SNAPSHOT = msgspec.json.Decoder(Snapshot)


def start_samples(order: NodeOrder, say: Callable[[Sampled], None]) -> None:
    """Has a sampler run for as long as this process does, and hands on what it sees of the order's devices, by the
    names that the run has for them.
    """
    spec = order.specs[0]
    host = host_of(spec.devices[spec.rank])

    def hand_on() -> None:
        if not any(map(is_gpu, spec.own_devices)):
            time.sleep(CPU_SAMPLER_DELAY_S)
        sampler = subprocess.Popen(
            [sys.executable, "-m", "engine.gpus", "--only-basics", "--interval", str(INTERVAL_S)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=paths.PACKAGES,
        )
        assert sampler.stdout is not None
        for line in sampler.stdout:
            with suppress(*NOT_DECODED):
                seen = samples_of(_SNAPSHOT.decode(line), tuple(dict.fromkeys(spec.own_devices)))
                say(
                    Sampled(
                        samples=tuple(msgspec.structs.replace(one, device=device_key(host, one.device)) for one in seen)
                    )
                )

    threading.Thread(target=hand_on, name="samples", daemon=True).start()
