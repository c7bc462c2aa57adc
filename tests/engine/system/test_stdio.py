"""Exit of processes that use PyTorch, even while its threads are running."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.worker_group import ROOT

WITHOUT_TORCH = {"fetch.py", "follower.py", "reader.py", "sending.py", "gpus/__main__.py", "data/__main__.py"}
BACKWARD_IN_A_THREAD = """
import sys, threading, time, torch
from engine.system.stdio import exit_now

class Slow(torch.autograd.Function):
    forward = staticmethod(lambda ctx, value: value * 2)

    @staticmethod
    def backward(ctx, gradient):
        has_started.set()
        time.sleep(0.1)  # while Python is being finalized, if it is
        return gradient

has_started = threading.Event()
value = Slow.apply(torch.ones(1, requires_grad=True))
threading.Thread(target=value.backward, daemon=True).start()
has_started.wait()
sys.stdout.write("written")
"""


@pytest.mark.long
@pytest.mark.timeout(60)
def test_process_ends_in_order_during_a_backward_pass() -> None:
    code = BACKWARD_IN_A_THREAD + "exit_now(3)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "written", "")


REDIRECTED = """
import sys
from pathlib import Path
from engine.system import stdio
stdio.redirect_output(Path(sys.argv[1]))
print("out", sys.stdin.read())
sys.stderr.write("err")
stdio.exit_now(3)
"""


@pytest.mark.parametrize("disk", ["", "/dev/full"])
@pytest.mark.skipif(sys.platform != "linux", reason="reads /dev/full")
def test_redirect_appends_all_output_and_ignores_a_full_disk(tmp_path: Path, disk: str) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    done = subprocess.run(
        [sys.executable, "-c", REDIRECTED, disk or str(log)],
        cwd=ROOT, input="unread", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
    assert log.read_text() == ("before\n" if disk else "before\nout \nerr")


def test_only_programs_without_torch_finalize_python() -> None:
    programs = [path for path in (ROOT / "engine").rglob("*.py") if "__main__" in path.read_text()]
    finalizing = [path for path in programs if re.search(r"^    sys\.exit\(", path.read_text(), re.MULTILINE)]
    assert len(programs) > 15
    assert [path for path in finalizing if not any(str(path).endswith(f"/{name}") for name in WITHOUT_TORCH)] == []
