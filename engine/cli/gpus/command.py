"""Options of ``footplate gpus``, and the output of its snapshots."""

from __future__ import annotations

import argparse
import errno
import sys
from collections.abc import Iterator

from engine.cli import children
from engine.cli.terminal import COMPLETED, print_error, print_lines
from engine.contract.devices import Nvml, Snapshot, SnapshotRequest
from engine.gpus import sentences

INTERVAL_S = 1.0


def add_gpus(parser: argparse.ArgumentParser) -> None:
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--details", action="store_true", help="show all readings of each GPU, and the topology")
    formats.add_argument("--json", action="store_true", help="print one JSON snapshot per line")
    formats.add_argument("--csv", action="store_true", help="print a header, then one line per GPU and snapshot")
    formats.add_argument(
        "--prometheus", type=_parse_port, metavar="PORT", help="serve the metrics at http://127.0.0.1:PORT/metrics"
    )
    parser.set_defaults(command=gpus)
    parser.add_argument("--watch", action="store_true", help="repeat until Ctrl+C")
    parser.add_argument(
        "--interval", type=_parse_interval, metavar="S", help=f"seconds between snapshots, {INTERVAL_S:g} by default"
    )


def gpus(options: argparse.Namespace) -> int:
    """Show this machine's devices, once or until Ctrl+C. Returns an exit code."""
    if options.interval is not None and not options.watch and options.prometheus is None:
        return print_error("--interval needs --watch or --prometheus PORT.")
    try:
        if options.prometheus is not None:
            return _serve(options.prometheus, options.interval or INTERVAL_S)
        if options.json:
            _print_json(options)
        elif options.csv:
            _print_csv(options)
        elif options.watch and sys.stdout.isatty():
            _show_live(options)
        else:
            _print_tables(options)
    except children.ChildFailed as error:
        return print_error(f"the devices could not be read: {error}")
    return COMPLETED


def _print_json(options: argparse.Namespace) -> None:
    """Print the sampler's lines, which are complete snapshots, without decoding them."""
    for line in children.read_snapshot_lines(once=not options.watch, interval_s=options.interval or INTERVAL_S):
        print_lines(line.decode().removesuffix("\n"))


def _print_csv(options: argparse.Namespace) -> None:
    """Print a CSV header, then the lines of each snapshot. Reasons for missing GPUs go to standard error."""
    from engine.cli.gpus import csv_lines

    print_lines(csv_lines.header())
    reporter = NvmlReporter()
    for snapshot in _read_snapshots(options, SnapshotRequest(processes=False)):
        reporter.report(snapshot.nvml)
        print_lines(*csv_lines.format_lines(snapshot))


def _print_tables(options: argparse.Namespace) -> None:
    """Read one snapshot, or with `--watch` one per interval, and print each as a table below the previous one."""
    from engine.cli.gpus.screen import create_console
    from engine.cli.gpus.table import View

    out = create_console(sys.stdout)
    for number, snapshot in enumerate(_read_snapshots(options, SnapshotRequest(activity=options.details))):
        if number:
            out.print()
        out.print(View(snapshot, details=options.details))


def _show_live(options: argparse.Namespace) -> None:
    """Redraw each new snapshot on the terminal's alternate screen, until Ctrl+C."""
    from engine.cli.gpus.screen import create_console, full_screen
    from engine.cli.gpus.table import View

    with full_screen(create_console(sys.stdout)) as show:
        for snapshot in _read_snapshots(options, SnapshotRequest(activity=options.details)):
            show(View(snapshot, details=options.details))


def _serve(port: int, interval_s: float) -> int:
    """Serve the metrics over HTTP until Ctrl+C. Returns an exit code."""
    from engine.cli.gpus.metrics import MetricsServer

    try:
        metrics = MetricsServer(port, interval_s)
    except OSError as error:
        return print_error(_explain_port_error(port, error))
    with metrics:
        print_lines(f"Metrics at {metrics.url} until Ctrl+C.", to=sys.stderr)
        reporter = NvmlReporter()
        for snapshot in children.read_snapshots(interval_s=interval_s, request=SnapshotRequest(processes=False)):
            metrics.set_snapshot(snapshot)
            reporter.report(snapshot.nvml)
    return COMPLETED


def _explain_port_error(port: int, error: OSError) -> str:
    """Explain why the metrics can't be served at a port, with a remedy."""
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is used by another program: choose another one, or 0 for any free port."
    if error.errno == errno.EACCES:
        return f"port {port} is not open to this user: choose one above 1023."
    return f"port {port} could not be used ({error.strerror or error}): choose another one."


class NvmlReporter:
    """Reporter that prints NVML's messages about missing GPUs to standard error, once for each reason.

    It is used for outputs that contain only numbers.
    """

    def __init__(self) -> None:
        self._reported_reason = ("ok", "")  # status and text

    def report(self, nvml: Nvml) -> None:
        """Print NVML's message, if it has one, unless the last call printed a message for the same reason."""
        if nvml.message == sentences.ASKING:
            return  # the first answer is pending
        # Messages about errors contain a growing number of seconds, so they don't identify the reason.
        reason = (nvml.status, nvml.message if nvml.status == "ok" else "")
        if reason != self._reported_reason and nvml.message:
            print_error(nvml.message)
        self._reported_reason = reason


def _read_snapshots(options: argparse.Namespace, request: SnapshotRequest) -> Iterator[Snapshot]:
    """Yield one snapshot, or one per interval with `--watch`. `request` limits the expensive readings."""
    return children.read_snapshots(once=not options.watch, interval_s=options.interval or INTERVAL_S, request=request)


def _parse_interval(text: str) -> float:
    """Convert the value of `--interval` to seconds. Raises ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.05 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not a valid interval: choose between 0.05 and 3600 seconds")
    return value


def _parse_port(text: str) -> int:
    """Convert the value of `--prometheus` to a port. Raises ArgumentTypeError."""
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(
            f"{text} is not a valid port: choose one from 1 to 65535, or 0 for any free port"
        )
    return int(text)
