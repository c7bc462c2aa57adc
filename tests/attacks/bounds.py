"""The inspector's real process, run under the bounds that no dataset may break."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

MOST_BYTES = 1 << 30
MOST_CPU_S = 10
WAITED_S = 120
"""A machine that is busy takes its time; one that waits for a FIFO does so without using its core."""


class Looked(NamedTuple):
    """What the inspector said, and what that cost."""

    report: dict[str, Any]
    said: str
    resident_bytes: int
    cpu_s: float

    @property
    def told(self) -> str:
        """All that the user is told."""
        return "\n".join(f"{each['message']} {each['remedy']}" for each in self.report["problems"])


def look_at(folder: Path, task: str) -> Looked:
    """Looks through a folder for `task`, a kind of annotations. Fails where the process is not done by itself."""
    command = [sys.executable, "-m", "engine.data", str(folder), "--kinds", task]
    process = subprocess.Popen(
        [sys.executable, "-c", _FRUGAL, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)
    )
    try:
        out, said = process.communicate(timeout=WAITED_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, f"it ended with {process.returncode}: {said.decode()[-1000:]}"
    *lines, cost = out.splitlines()
    used = json.loads(cost)
    return Looked(json.loads(lines[-1])["report"], said.decode(), used["resident_kib"] << 10, used["cpu_s"])


_FRUGAL = f"""
import json, resource, subprocess, sys
limit = lambda: resource.setrlimit(resource.RLIMIT_CPU, ({MOST_CPU_S}, {MOST_CPU_S}))
done = subprocess.run(sys.argv[1:], preexec_fn=limit)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({{"resident_kib": used.ru_maxrss, "cpu_s": used.ru_utime + used.ru_stime}}))
sys.exit(done.returncode)
"""
"""Measures the inspector from a small process: what is started by a large one counts as large itself."""
