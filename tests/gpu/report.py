"""Report of the GPU tests: report.json, and report.md for people. It imports only the standard library.

    python -m tests.gpu.report FOLDER REPORT.json ...

merges the reports of several runs. If several reports contain a part, the last one is used.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LABELS = {"ok": "ok", "failed": "FAILED", "skipped": "skipped", "measured": ""}
"""Display text of each outcome."""

Result = Mapping[str, Any]


class Report:
    """Report of the GPU tests, written to the folder `out`.

    `before` is the content of an earlier report, whose parts are included, or None.

    Raises:
        ValueError: One of the two reports is from a rehearsal and the other one isn't.
    """

    def __init__(self, out: Path, *, rehearse: bool, before: Mapping[str, Any] | None = None) -> None:
        self._out = out
        self._started = time.monotonic()
        self.content: dict[str, Any] = {
            "rehearsal": rehearse,
            "commit": _describe_commit(),
            "begun": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
            "status": "running",
            "seconds": 0.0,
            "facts": {"Python": platform.python_version(), "System": platform.platform()},
            "parts": [],
        }
        if before is not None:
            if before["rehearsal"] != rehearse:
                raise ValueError("Can't combine a rehearsal with a report of a GPU.")
            self.content["facts"] = before["facts"] | self.content["facts"]
            self.content["parts"] = before["parts"]
        self.write()

    def start_part(self, name: str, about: str) -> dict[str, Any]:
        """Add an entry for a part, replace an earlier entry of this part, and return the entry.

        `about` describes the part.
        """
        self.content["parts"] = [part for part in self.content["parts"] if part["name"] != name]
        self.content["parts"].append({"name": name, "about": about, "seconds": None, "results": []})
        self.write()
        entry: dict[str, Any] = self.content["parts"][-1]
        return entry

    def add(self, result: Result) -> None:
        self.content["parts"][-1]["results"].append(dict(result))
        self.write()

    def fact(self, name: str, value: str) -> None:
        self.content["facts"][name] = value
        self.write()

    def finish(self, *, early: bool) -> None:
        self.content["status"] = "interrupted" if early else "finished"
        self.write()

    @property
    def failures(self) -> list[Result]:
        return [result for result in results(self.content) if result["outcome"] == "failed"]

    def write(self) -> None:
        self.content["seconds"] = round(time.monotonic() - self._started, 1)
        write_report(self.content, self._out)


def write_report(content: Mapping[str, Any], out: Path) -> None:
    """Write the report to report.json and report.md in the folder `out`, each atomically."""
    for name, text in (("report.json", json.dumps(content, indent=1)), ("report.md", markdown(content))):
        partial = out / f".{name}.part"
        partial.write_text(text + "\n", encoding="utf-8")
        os.replace(partial, out / name)


def results(content: Mapping[str, Any]) -> Iterable[Result]:
    return (result for part in content["parts"] for result in part["results"])


def summarize(content: Mapping[str, Any]) -> str:
    """Summarize the report in one line."""
    counts = Counter(result["outcome"] for result in results(content))
    counted = ", ".join(f"{counts[outcome]} {outcome}" for outcome in ("ok", "failed", "measured", "skipped"))
    return f"{counted}; {len(content['parts'])} parts in {sum(part['seconds'] or 0 for part in content['parts']):.0f} s"


def format_line(result: Result) -> str:
    """Format a result as a line for the terminal."""
    figure, aim = _figure(result), _aim(result)
    what = f"{result['name']}: {figure}" if figure else str(result["name"])
    aimed = f" (aim: {aim})" if aim else ""
    text = f" - {result['text']}" if result.get("text") else ""
    return f"{LABELS[result['outcome']]:8}{what}{aimed}{text}"


def markdown(content: Mapping[str, Any]) -> str:
    what = "Rehearsal on the CPU" if content["rehearsal"] else f"Footplate on {content['facts'].get('GPU', 'a GPU')}"
    lines = [f"# {what}", "", f"{content['begun']}, commit {content['commit']}. {summarize(content)}."]
    if content["status"] != "finished":
        lines += ["", f"**Incomplete ({content['status']}).**"]
    failed = [result for result in results(content) if result["outcome"] == "failed"]
    if failed:
        lines += ["", "## Failures", "", *(f"- {_cell(format_line(result))}" for result in failed)]
    lines += ["", "## Machine", "", "| | |", "|---|---|"]
    lines += [f"| {_cell(name)} | {_cell(value)} |" for name, value in content["facts"].items()]
    for part in content["parts"]:
        took = "unfinished" if part["seconds"] is None else f"{part['seconds']:.0f} s"
        lines += ["", f"## {part['name']}", "", f"{part['about']} ({took}).", ""]
        lines += ["| check | | value | aim | |", "|---|---|---|---|---|"]
        lines += [
            f"| {_cell(result['name'])} | {LABELS[result['outcome']]} | {_figure(result)} | {_aim(result)} | "
            f"{_cell(result.get('text', ''))} |"
            for result in part["results"]
        ]
    return "\n".join(lines)


def _figure(result: Result) -> str:
    return f"{result['figure']:,.4g} {result['unit']}".strip() if "figure" in result else ""


def _aim(result: Result) -> str:
    bounds = (("at_most", "at most"), ("at_least", "at least"))
    return ", ".join(f"{label} {result[bound]:,.4g}" for bound, label in bounds if bound in result)


def _cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def _describe_commit() -> str:
    """Return the Git commit, or "unknown" if it can't be determined."""
    try:
        command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("reports", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    contents = [json.loads(path.read_text(encoding="utf-8")) for path in options.reports]
    merged = contents[-1] | {"facts": {}, "parts": []}
    by_name: dict[str, Any] = {}
    for content in contents:
        merged["facts"] |= content["facts"]
        by_name |= {part["name"]: part for part in content["parts"]}
    merged["parts"] = list(by_name.values())
    options.folder.mkdir(parents=True, exist_ok=True)
    write_report(merged, options.folder)
    print(summarize(merged))


if __name__ == "__main__":
    main()
