"""Child processes that commands start: Ctrl+C, and children that exit without an answer.

Shell scripts stand in for the Python interpreter.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import msgspec
import pytest

from engine.cli import children
from engine.cli.terminal import BAD_REQUEST, FAILED, CommandError
from engine.contract.advice import AdviceRequest, FinderRequest
from engine.contract.dataset import InspectionProgress
from engine.contract.job import Job
from engine.contract.messages import Done
from engine.system import paths
from tests.engine.cli.prepared_commands import ADVICE, READ
from tests.engine.cli.terminal import TerminalStream, run_in_this_process
from tests.support.scripts import write_script

PROGRESS = """echo '{"type":"progress","fraction":0.5,"what":"Measuring"}'"""


def replace_python(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    write_script(folder / "python", f"cat > /dev/null\n{script}")
    monkeypatch.setattr(sys, "executable", str(folder / "python"))


class Keyboard(TerminalStream):
    """Terminal on which Ctrl+C is pressed `presses` times, each time when progress is shown."""

    def __init__(self, presses: int) -> None:
        super().__init__()
        self.presses = presses

    def write(self, text: str) -> int:
        if "Measuring" in text and self.presses:
            self.presses -= 1
            signal.raise_signal(signal.SIGINT)
        return super().write(text)


@pytest.mark.parametrize(
    ("request_", "presses", "is_answered"),
    [
        (AdviceRequest(job=Job()), 0, True),
        (AdviceRequest(job=Job()), 1, True),
        (AdviceRequest(job=Job()), 2, False),
        (FinderRequest("rate", Job()), 1, False),
    ],
)
def test_first_ctrl_c_ends_only_the_trials_of_advice(
    request_: AdviceRequest | FinderRequest,
    presses: int,
    is_answered: bool,
    *,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    answer = msgspec.json.encode(Done(ADVICE)).decode()
    at_term = f"trap 'exit 0' TERM; {PROGRESS}" if presses == 2 else f"echo '{answer}'; exit 0"
    waiting = "while :; do sleep 0.02; done" if presses else "at_term"
    replace_python(monkeypatch, tmp_path, f"at_term() {{\n{at_term}\n}}\ntrap at_term TERM\n{PROGRESS}\n{waiting}")
    monkeypatch.setattr(sys, "stderr", Keyboard(presses))
    handler = signal.getsignal(signal.SIGINT)
    if is_answered:
        assert children.run_in_child(request_) == ADVICE
    else:
        with pytest.raises(KeyboardInterrupt):
            children.run_in_child(request_)
    assert signal.getsignal(signal.SIGINT) == handler


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo first >&2; echo 'no memory' >&2; exit 3", "no memory"),
        ("yes | head -c 70000 >&2; echo last >&2", "last"),
        ("pwd -P >&2", str(paths.PACKAGES.resolve())),  # so that no module of the user shadows Footplate's
        ("exit 1", "it exited with code 1 without reporting an error"),
        ("kill -9 $$", "it was killed by SIGKILL (signal 9); if nobody sent it, the system was out of memory"),
    ],
)
def test_exit_without_an_answer_is_explained(
    script: str, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replace_python(monkeypatch, tmp_path, script)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandError) as error:
        children.run_in_child(AdviceRequest(job=Job()), refused=FAILED)
    assert error.value.code == FAILED
    assert capsys.readouterr().err == f"footplate: job: The trials ended early: {reason}.\n"


def test_inspection_reports_its_progress(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    messages = [InspectionProgress(done=1, total=2), InspectionProgress(done=2, total=2), Done(READ)]
    lines = "\n".join(msgspec.json.encode(message).decode() for message in messages)
    (tmp_path / "lines").write_text(f"{lines}\n")
    replace_python(monkeypatch, tmp_path, f'echo "$@" > {tmp_path}/arguments; cat {tmp_path}/lines')
    progress: list[InspectionProgress] = []
    assert children.inspect(Job.from_fields(dataset="/data", seed=7), progress.append, samples=3) == READ
    assert progress == messages[:2]
    arguments = (tmp_path / "arguments").read_text()
    assert arguments.startswith("-m engine.data /data ")
    assert all(text in arguments for text in ("--seed 7", "--samples 3"))


def test_failed_inspection_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    replace_python(monkeypatch, tmp_path, "echo 'no memory' >&2")
    answer = run_in_this_process("inspect", str(tmp_path), "--task", "detection")
    message = "the folder could not be inspected: no memory. Try again, or another folder."
    assert answer == (BAD_REQUEST, "", f"footplate: {message}\n")


def test_single_snapshot_must_arrive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    replace_python(monkeypatch, tmp_path, "echo 'no driver' >&2")
    with pytest.raises(children.ChildFailed, match="no driver"):
        children.read_snapshot()
