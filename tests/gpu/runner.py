"""Runner of the GPU tests. It imports only the standard library.

Each part runs in a process with a time limit. If a check fails, crashes or times out, the part is restarted after that
check. The report on disk is updated with each result, so it is valid at any time.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gpu.report import Report, format_line, summarize

ROOT = Path(__file__).resolve().parents[2]
ALL_DEVICES = "FOOTPLATE_PROOF_ALL_DEVICES"
"""Environment variable that is set if each rank should use another GPU."""
MARK = "FOOTPLATE_PROOF"
"""Environment variable that identifies all processes of a test run, including orphans."""
FIRST_WORD_S = 120.0
"""Seconds within which the process of a part must import torch and list its checks."""
GOODBYE_S = 10.0
"""Seconds that the child processes of a part have for exiting after it has finished."""
POLL_S = 1.0
STACK_S = 1.0
"""Seconds that a process has for printing its stack after a timeout."""
TEXT_LIMIT = 600
LEFT_OUT = "not enough time"


@dataclass(frozen=True)
class Part:
    """Part of the GPU tests, a module in `tests/gpu/parts`.

    Attributes:
        seconds: Time limit for all checks of the part together.
        expected_s: Expected duration in seconds. The part is skipped if the remaining time is shorter. If an earlier
            report contains the part, its duration there is expected instead.
    """

    name: str
    about: str
    seconds: float
    expected_s: float
    module: str = ""
    checks: tuple[str, ...] = ()
    """Checks of the module that belong to this part, or () for all."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", self.module or f"tests.gpu.parts.{self.name.replace('-', '_')}"]


PARTS = (
    Part("machine", "GPU, versions and peak rates", 120, 25),
    Part(
        "speed", "Images/s next to bare steps and other loops: ResNet-50, ViT-B/16", 340, 100, checks=("ResNet-50", "ViT-B/16")
    ),
    Part("outcome", "Time to an accuracy on synthetic images, next to a tuned plain loop", 120, 40),
    Part("nccl", "Every strategy over NCCL with several ranks, and faults inside NCCL", 360, 150),
    Part("using", "Evaluation, prediction, heat maps and conversion on the GPU, compared with the CPU", 300, 70),
    Part("costs", "Cost of profiled steps, checkpoints and the monitor", 240, 60),
    Part("starting", "Time from Train to the first loss", 200, 60),
    Part("sampler", "The monitor's sampler next to nvidia-smi and torch", 240, 45),
    Part(
        "speed-more", "The same: ConvNeXt-T, small images, torch.compile", 400, 140, "tests.gpu.parts.speed",
        ("ConvNeXt-T", "ResNet-18 at 32 px", "ResNet-50, compiled"),
    ),
    Part(
        "speed-others", "The same: ResNet-18, many loader workers, a small network", 400, 120, "tests.gpu.parts.speed",
        ("ResNet-18", "ResNet-50, one loader worker per core", "small network at 32 px"),
    ),
    Part(
        "speed-detectors", "Images/s and memory of D-FINE-S and RF-DETR-Nano, next to bare steps", 240, 70, "tests.gpu.parts.speed",
        ("D-FINE-S", "RF-DETR-Nano"),
    ),
    Part("existing", "Tests that need a GPU: batches, training against the CPU, memory, the sampler", 420, 180),
    Part("waiting", "Waits for the device in the steps of each task", 420, 150),
    Part("memory", "Insufficient memory", 300, 60),
    Part("ending", "Stops, pauses and killed processes: time until the GPU is free or training continues", 300, 90),
    Part("resuming", "Resumed runs equal uninterrupted ones bit by bit", 240, 80),
    Part("precision", "fp32, bf16, fp16 and its loss scale", 180, 60),
    Part("strategies", "DataParallel replicas, and two ranks over gloo, on one GPU", 240, 60),
    Part("compiling", "torch.compile and CUDA graphs are used and don't change results", 450, 180),
    Part("search", "Speed without cuDNN's search for the fastest convolutions, which Footplate doesn't use", 240, 120),
)  # fmt: skip
"""Parts, by decreasing priority. Together they take about half an hour on a fast GPU."""


@dataclass
class _Attempt:
    """Process that runs a part of the tests.

    `left` holds the requested checks that haven't started, or None if all checks were requested.
    """

    left: list[str] | None
    begun: int = 0
    limits: dict[str, float] = field(default_factory=dict)
    check: str = ""
    began: float = field(default_factory=time.monotonic)

    @property
    def deadline(self) -> float:
        return self.began + (self.limits[self.check] if self.check else FIRST_WORD_S)


class Runner:
    """Runner of `parts` for at most `seconds`. It writes a report and a log to the folder `out`.

    `before` is the content of an earlier report. Parts that are finished in it are skipped, and the durations in it
    replace the expected ones. If `rehearse`, the parts run on the CPU.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        out: Path,
        *,
        seconds: float,
        rehearse: bool,
        environment: Mapping[str, str],
        before: Mapping[str, Any] | None = None,
    ) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.report = Report(out, rehearse=rehearse, before=before)
        self._durations = {part["name"]: part["seconds"] for part in self.report.content["parts"] if part["seconds"]}
        self._finished = {part["name"] for part in self.report.content["parts"] if _is_finished(part)}
        self._out = out
        self._parts = parts
        self._deadline = time.monotonic() + seconds
        self._rehearse = rehearse
        self._mark = f"{os.getpid()}-{time.time_ns()}"
        self._environment = {**environment, MARK: self._mark}
        self._log = open(out / "log.txt", "ab")  # noqa: SIM115 - closed by `run`

    def run(self) -> bool:
        """Run all parts. Return True if nothing failed."""
        early = True
        try:
            for number, part in enumerate(self._parts, 1):
                print(f"\n[{number}/{len(self._parts)}] {part.name}: {part.about}", flush=True)
                if part.name in self._finished:
                    print("  done in an earlier run", flush=True)
                    continue
                begun = time.monotonic()
                entry = self.report.start_part(part.name, part.about)
                try:
                    self._run_part(part)
                finally:
                    entry["seconds"] = round(time.monotonic() - begun, 1)
            early = False
        except KeyboardInterrupt:
            print("\nInterrupted; the report contains all results until now.", flush=True)
        finally:
            self.report.finish(early=early)
            self._end_processes()
            self._log.close()
        return not self.report.failures

    # One part

    def _run_part(self, part: Part) -> None:
        remaining, needed = self._deadline - time.monotonic(), self._durations.get(part.name, part.expected_s)
        if remaining < needed:
            text = f"{LEFT_OUT}; it takes about {needed:.0f} s, and {max(remaining, 0.0):.0f} s remained"
            self._report_result(name=part.name, outcome="skipped", text=text)
            return
        deadline = min(time.monotonic() + part.seconds, self._deadline)
        left = list(part.checks) or None
        while left is None or left:
            if time.monotonic() >= deadline:
                self._skip(left, LEFT_OUT)
                return
            attempt = self._run_attempt(part, left, deadline)
            if not attempt.begun:  # another attempt would come no further
                self._skip(attempt.left, "the part didn't start")
                return
            left = attempt.left

    def _skip(self, checks: Sequence[str] | None, why: str) -> None:
        for check in checks or ():
            self._report_result(name=check, outcome="skipped", text=why)

    def _run_attempt(self, part: Part, checks: list[str] | None, deadline: float) -> _Attempt:
        """Run a part's `checks` in a process until `deadline`, or all checks of the part if `checks` is None.

        Returns the finished attempt.
        """
        self._log.write(f"\n=== {part.name} {' '.join(checks or ())}\n".encode())
        self._log.flush()
        logged = self._log.tell()
        attempt = _Attempt(checks)
        process = subprocess.Popen(
            [*part.command, *(["--rehearse"] if self._rehearse else []), *(checks or ())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            env=self._environment,
        )
        late = not self._listen(process, attempt, deadline)
        if late:
            process.send_signal(signal.SIGUSR1)  # at which faulthandler writes the stacks
            time.sleep(STACK_S)
            process.kill()
        self._end_processes(0.0 if late else GOODBYE_S)
        with suppress(subprocess.TimeoutExpired):  # a driver may hold it for good
            process.wait(GOODBYE_S)
        self._report_unfinished(part, attempt, process.returncode, late, self._last_lines(logged))
        return attempt

    def _listen(self, process: subprocess.Popen[bytes], attempt: _Attempt, deadline: float) -> bool:
        """Read the messages of the process until it exits. Return False if it timed out."""
        assert process.stdout is not None
        rest = b""
        with process.stdout as pipe, selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while (now := time.monotonic()) < (until := min(attempt.deadline, deadline)):
                if not selector.select(min(POLL_S, until - now)):
                    if process.poll() is not None:  # and something that it started holds its output
                        return True
                    continue
                data = os.read(pipe.fileno(), 1 << 16)
                if not data:
                    return True
                *lines, rest = (rest + data).split(b"\n")
                for each in lines:
                    self._take(each, attempt)
        return False

    def _take(self, text: bytes, attempt: _Attempt) -> None:
        try:
            message = json.loads(text)
        except ValueError:
            message = None
        match message:
            case {"checks": dict(limits)}:
                attempt.limits = limits
                attempt.left = [check for check in limits if attempt.left is None or check in attempt.left]
            case {"begin": str(check)}:
                attempt.check, attempt.began = check, time.monotonic()
                attempt.begun += 1
                attempt.left = [other for other in attempt.left or () if other != check]
            case {"end": str()}:
                attempt.check, attempt.began = "", time.monotonic()
            case {"fact": str(name), "value": value}:
                self.report.fact(name, str(value))
            case {"file": str(name), "text": str(content)}:
                (self._out / Path(name).name).write_text(content)
            case {"name": str(), "outcome": str()}:
                self._report_result(**message)
            case _:
                self._log.write(text + b"\n")

    def _report_unfinished(self, part: Part, attempt: _Attempt, code: int | None, late: bool, last: str) -> None:
        """Report a check or part whose process timed out or exited early.

        `code` is its exit code, `late` is True if it timed out, and `last` holds the last lines of its log.
        """
        name = attempt.check or part.name
        if late:
            took = f"it took longer than {time.monotonic() - attempt.began:.0f} s; the log contains its stack"
            self._report_result(name=name, outcome="failed", text=took)
        elif attempt.check or not attempt.limits:
            self._report_result(
                name=name, outcome="failed", text=f"its process was ended {_describe_exit(code)}: {last}"[:TEXT_LIMIT]
            )

    def _report_result(self, **result: Any) -> None:
        self.report.add(result)
        print(f"  {format_line(result)}", flush=True)

    def _last_lines(self, since: int) -> str:
        self._log.flush()
        with open(self._log.name, "rb") as log:
            log.seek(max(since, log.seek(0, os.SEEK_END) - 4096))
            lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        return " / ".join(lines[-2:]) or "no output"

    # Processes

    def _end_processes(self, patience_s: float = 0.0) -> None:
        """Kill all processes of the test run that remain after `patience_s` seconds.

        They are reported as a failure, unless `patience_s` is 0.
        """
        deadline = time.monotonic() + patience_s
        while (pids := list(find_marked_processes(self._mark))) and time.monotonic() < deadline:
            time.sleep(0.05)
        if pids and patience_s:
            commands = "; ".join(f"{pid} {command(pid)}" for pid in pids)
            self._report_result(name="no process remains", outcome="failed", text=commands[:TEXT_LIMIT])
        deadline = time.monotonic() + GOODBYE_S
        while (pids := list(find_marked_processes(self._mark))) and time.monotonic() < deadline:
            for pid in pids:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)


def _is_finished(part: Mapping[str, Any]) -> bool:
    """Return True if a part's entry in the report is complete."""
    return part["seconds"] is not None and not any(
        result["outcome"] == "skipped" and result.get("text", "").startswith(LEFT_OUT) for result in part["results"]
    )


def find_marked_processes(mark: str) -> Iterator[int]:
    """Yield the ids of running processes whose environment contains `mark`. On systems without /proc, yield none."""
    entry = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if entry in (folder / "environ").read_bytes().split(b"\0") and int(folder.name) != os.getpid():
                yield int(folder.name)


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:120]
    except OSError:
        return "?"


def _describe_exit(code: int | None) -> str:
    if code is not None and code < 0:
        return f"by {signal.Signals(-code).name}"
    return f"with exit code {code}"


# Command line


def unpack_wheels(wheels: Path, target: Path) -> None:
    """Unpack the wheels in the folder `wheels` into the folder `target`, except those of installed packages."""
    for wheel in sorted(wheels.glob("*.whl")):
        name = wheel.name.split("-")[0]
        try:
            print(f"{name} {importlib.metadata.version(name)} is already installed")
        except importlib.metadata.PackageNotFoundError:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(target)
            print(f"{wheel.name} is unpacked")


@contextmanager
def prepare_environment(wheels: Path | None) -> Iterator[dict[str, str]]:
    """Create temporary folders, and yield environment variables for the processes of all parts.

    The variables redirect Footplate's folders to the temporary ones, and add this source tree and the packages in the
    folder `wheels` to the module path.
    """
    with tempfile.TemporaryDirectory(prefix="fp", ignore_cleanup_errors=True) as name:
        place = Path(name)
        if wheels is not None:
            unpack_wheels(wheels, place / "packages")
        paths = [str(ROOT), str(place / "packages"), *filter(None, [os.environ.get("PYTHONPATH")])]
        runtime = place / "run"
        runtime.mkdir(mode=0o700)
        yield {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONUNBUFFERED": "1",
            "FOOTPLATE_HOME": str(place / "home"),
            "FOOTPLATE_CACHE": str(place / "cache"),
            "XDG_RUNTIME_DIR": str(runtime),
            "TORCHINDUCTOR_CACHE_DIR": str(place / "inductor"),
            "TRITON_CACHE_DIR": str(place / "triton"),
        }


def _parse_duration(text: str) -> float:
    """Parse a duration such as "8m", "480s" or "0.5h"."""
    factor = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:])
    try:
        return factor * float(text[:-1]) if factor else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 8m or 480s") from None


def _end_at_sigterm() -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)


def main(arguments: Sequence[str] | None = None, parts: Sequence[Part] = PARTS) -> int:
    """Run the tests that the command line selects, from `parts`. Return 1 if something failed, otherwise 0."""
    names = [part.name for part in parts]
    parser = argparse.ArgumentParser(
        prog="tests/gpu/run",
        description="Test Footplate on the first NVIDIA GPU of this machine and write a report.",
        epilog="\n".join(f"  {part.name:16}{part.about} (about {part.expected_s:.0f} s)" for part in parts),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="PART", help="run only these parts")
    parser.add_argument("--out", type=Path, default=ROOT / "build/gpu", help="folder for the report (build/gpu)")
    parser.add_argument(
        "--rehearse", action="store_true", help="run small versions of all parts on the CPU, to test the tests"
    )
    parser.add_argument(
        "--wheels", type=Path, help="folder with wheels from tests/gpu/wheels; missing packages are taken from it"
    )
    parser.add_argument(
        "--budget", type=_parse_duration, default=1800.0, metavar="TIME",
        help="time for all parts, such as 8m or 480s; parts that don't fit are skipped (30m)",
    )  # fmt: skip
    parser.add_argument(
        "--continue",
        type=Path,
        dest="before",
        metavar="REPORT",
        help="earlier report.json; parts that it contains are not repeated",
    )
    parser.add_argument(
        "--devices", choices=("one", "all"), default="one", help="GPUs for the ranks of the part nccl (one)"
    )
    options = parser.parse_args(arguments)
    _end_at_sigterm()
    with prepare_environment(options.wheels) as environment:
        chosen = [part for part in parts if part.name in options.only]
        runner = Runner(
            chosen,
            options.out,
            seconds=options.budget,
            rehearse=options.rehearse,
            environment={**environment, ALL_DEVICES: "1" if options.devices == "all" else ""},
            before=json.loads(options.before.read_text(encoding="utf-8")) if options.before is not None else None,
        )
        proved = runner.run()
    print(f"\n{summarize(runner.report.content)}\n{options.out / 'report.md'}")
    return 0 if proved else 1
