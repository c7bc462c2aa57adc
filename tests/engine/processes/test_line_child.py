"""Child processes whose lines of output a selector reads."""

from __future__ import annotations

import selectors
import signal

import msgspec
import pytest

from engine.processes import line_child
from engine.processes.line_child import LineChild

DEAF = "import signal, sys; print('a warning', file=sys.stderr); signal.signal(signal.SIGTERM, signal.SIG_IGN); print('{}'); print('[', flush=True)"


@pytest.mark.parametrize("quiet", [True, False])
def test_line_child_reports_an_invalid_line_and_is_killed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], quiet: bool
) -> None:
    monkeypatch.setattr(line_child, "STOP_S", 0.1)
    lines: list[object] = []
    ends: list[str] = []
    arguments = ("timeit", "-n1", "-r1", "-s", DEAF, "import time; time.sleep(600)")
    with selectors.DefaultSelector() as selector:
        child = LineChild(
            selector, arguments, lambda line: lines.append(msgspec.json.decode(line)), ends.append, quiet=quiet
        )
        while not ends:
            for key, mask in selector.select():
                key.data(mask)
        child.close()
    assert (lines, [bool(end) for end in ends], child.process.returncode) == ([{}], [True], -signal.SIGKILL)
    assert capfd.readouterr().err == ("" if quiet else "a warning\n")
