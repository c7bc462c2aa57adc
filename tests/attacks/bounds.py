"""Limits on memory and CPU time that the real inspector must respect for any dataset."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

MAX_BYTES = 1 << 30
MAX_CPU_S = 10
WAITED_S = 120
"""Limit on the wall-clock time in seconds. It is generous, because the machine may be busy."""


class Inspection(NamedTuple):
    """Report of the inspector, with the memory and CPU time that it used."""

    report: dict[str, Any]
    errors: str
    resident_bytes: int
    cpu_s: float

    @property
    def texts(self) -> str:
        """Messages and remedies of all problems in the report, one problem per line."""
        return "\n".join(f"{each['message']} {each['remedy']}" for each in self.report["problems"])


def inspect_folder(folder: Path, kind: str) -> Inspection:
    """Inspect a folder for annotations of `kind` in a separate process. Fail if the process doesn't exit in time."""
    command = [sys.executable, "-m", "engine.data", str(folder), "--kinds", kind]
    process = subprocess.Popen(
        [sys.executable, "-c", _FRUGAL, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)
    )
    try:
        out, errors = process.communicate(timeout=WAITED_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, f"it ended with {process.returncode}: {errors.decode()[-1000:]}"
    *lines, cost = out.splitlines()
    used = json.loads(cost)
    return Inspection(json.loads(lines[-1])["answer"], errors.decode(), used["resident_kib"] << 10, used["cpu_s"])


_FRUGAL = f"""
import json, resource, subprocess, sys
limit = lambda: resource.setrlimit(resource.RLIMIT_CPU, ({MAX_CPU_S}, {MAX_CPU_S}))
done = subprocess.run(sys.argv[1:], preexec_fn=limit)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({{"resident_kib": used.ru_maxrss, "cpu_s": used.ru_utime + used.ru_stime}}))
sys.exit(done.returncode)
"""
"""Script that runs the inspector and measures its memory and CPU time.

It runs in a small process, because the memory of a large parent process would be counted as the inspector's.
"""
