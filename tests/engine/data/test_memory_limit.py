"""Memory limit of the process that inspects datasets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, os, resource, sys
from engine.data.memory_limit import allow, allow_for_text, limit_memory

allow(1 << 40)  # without a limit
status = open("/proc/self/status").read()
used = int(status.partition("VmData:")[2].split()[0]) << 10
limits = []

def note():
    limits.append((resource.getrlimit(resource.RLIMIT_DATA)[0] - used) >> 20)

limit_memory()
note()
for mib in (60, 10, 60):
    allow(mib << 20)
    note()
with open(sys.argv[1], "wb") as stream:
    stream.write(bytes(8 << 20))
    stream.truncate(1 << 30)
    stream.flush()
    os.fsync(stream.fileno())
allow_for_text(sys.argv[1])
note()
hard = used + (2000 << 20)
resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
allow(4000 << 20)
note()
print(json.dumps(limits))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")
def test_limit_rises_in_steps_up_to_the_hard_limit(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "sparse.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    first, *others = json.loads(done.stdout)
    assert 799 <= first <= 802  # loading the status takes memory, too
    assert [limit - first for limit in others[:3]] == [0, 70, 70]
    assert 258 <= others[3] - first <= 270  # 60, and 16 times the 8 MiB on disk
    assert others[4] == 2000
