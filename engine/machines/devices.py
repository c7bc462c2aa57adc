"""Describe this machine's devices, and sample them for the log of a run."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from engine.contract.devices import Snapshot, device_key, host_of, is_gpu
from engine.contract.nodes import NodeRequest, Sampled
from engine.supervisor.sampling import INTERVAL_S, samples_of
from engine.supervisor.start_gate import CPU_SAMPLER_DELAY_S
from engine.system import paths
from engine.system.children import run_child
from engine.system.decode_errors import NOT_DECODED

_SAMPLER = (sys.executable, "-m", "engine.gpus")
_SNAPSHOT_TIMEOUT_S = 60.0
_DECODER = msgspec.json.Decoder(Snapshot)


def snapshot() -> Snapshot:
    """Return the current state of this machine's devices. Raises OSError or subprocess.SubprocessError."""
    done = run_child([*_SAMPLER, "--once"], timeout_s=_SNAPSHOT_TIMEOUT_S, cwd=str(paths.PACKAGES))
    done.check_returncode()
    try:
        return _DECODER.decode(done.stdout)
    except NOT_DECODED as error:
        raise subprocess.SubprocessError(f"the sampler has printed no valid state: {error}") from error


def start_sampling(request: NodeRequest, send: Callable[[Sampled], None]) -> None:
    """Start a thread that samples the run's devices on this machine every `INTERVAL_S`, and passes samples to `send`.

    In the samples, the devices have the names that the run uses for them. `request` is the supervisor's request to
    train.
    """
    spec = request.specs[0]
    host = host_of(spec.devices[spec.rank])

    def sample() -> None:
        if not any(map(is_gpu, spec.local_devices)):
            time.sleep(CPU_SAMPLER_DELAY_S)  # on the CPU, the sampler's start would slow the first steps
        with subprocess.Popen(
            [*_SAMPLER, "--only-basics", "--interval", str(INTERVAL_S)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=paths.PACKAGES,
        ) as sampler:
            assert sampler.stdout is not None
            for line in sampler.stdout:
                with suppress(*NOT_DECODED):
                    samples = samples_of(_DECODER.decode(line), tuple(dict.fromkeys(spec.local_devices)))
                    named = (msgspec.structs.replace(each, device=device_key(host, each.device)) for each in samples)
                    send(Sampled(samples=tuple(named)))

    threading.Thread(target=sample, name="samples", daemon=True).start()
