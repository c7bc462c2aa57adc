"""Update of the table in `tests/benchmarks/README.md`, by running its benchmarks.

    python tests/benchmarks/report.py [--only NAME ...] [--table]

`figures.json` has an entry for each row: name, description, aim, command (arguments for Python), and a pattern. The
result is the last line of the command's output, or all lines that match the pattern, with the date and the machine.
`--only` measures only the named rows. `--table` measures nothing and only rewrites the table. A command that several
rows share runs once. If a command fails, its rows remain unchanged and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from functools import cache
from pathlib import Path

from tests.benchmarks.frame import ROOT

FIGURES = Path(__file__).with_name("figures.json")
PAGE = Path(__file__).with_name("README.md")
START, END = "<!-- written by report.py -->\n", "<!-- to here -->\n"
AIM_MISSED = 1

Figure = dict[str, str]


def run_figure(figure: Figure) -> str:
    """Run the command of a figure (a row of the table). Return its result in one line, or "" if it fails."""
    code, printed, errors = _run(figure["command"])
    lines = [line.strip() for line in printed.splitlines() if re.search(figure["line"] or ".", line)]
    if code not in (0, AIM_MISSED) or "Traceback" in errors or not lines:
        return ""
    text = "; ".join(lines if figure["line"] else lines[-1:]).replace("|", "/")
    return f"{text} (aim missed)" if code else text


@cache
def _run(command: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, *shlex.split(command)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def format_table(figures: Sequence[Figure]) -> str:
    """Format the figures as a Markdown table, followed by a list of the machines on which they were measured."""
    machines = list(dict.fromkeys(figure["machine"] for figure in figures))
    lines = ["| name | what | aim | measured | on | command |", "|---|---|---|---|---|---|"]
    for figure in figures:
        on = f"{figure['date']}, machine {machines.index(figure['machine']) + 1}"
        cells = (figure["name"], figure["what"], figure["aim"], figure["measured"], on, f"`{figure['command']}`")
        lines.append(f"| {' | '.join(cells)} |")
    text = [f"{number}. {machine}" for number, machine in enumerate(machines, 1)]
    return "\n".join([*lines, "", "Machines:", "", *text, ""])


def update_report(page: Path, figures_file: Path, names: Sequence[str], machine: str) -> int:
    """Measure the figures `names` on `machine`, and update the file of figures and the table in the file `page`.

    Returns 1 if a measurement failed, otherwise 0.
    """
    figures: list[Figure] = json.loads(figures_file.read_text(encoding="utf-8"))
    failed = False
    for figure in figures:
        if figure["name"] in names:
            text = run_figure(figure)
            failed = failed or not text
            print(f"{figure['name']}: {text or 'ended in an error, and is as it was'}", flush=True)
            if text:
                figure |= {"measured": text, "date": date.today().isoformat(), "machine": machine}
    figures_file.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    head, _, rest = page.read_text(encoding="utf-8").partition(START)
    page.write_text(head + START + format_table(figures) + END + rest.partition(END)[2], encoding="utf-8")
    return int(failed)


def main() -> int:
    names = [figure["name"] for figure in json.loads(FIGURES.read_text(encoding="utf-8"))]
    parser = argparse.ArgumentParser(prog="tests/benchmarks/report.py", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help="these lines alone")
    parser.add_argument("--table", action="store_true", help="run nothing, and write the table of what is kept")
    chosen = parser.parse_args()
    from tests.benchmarks.frame import describe_environment

    return update_report(PAGE, FIGURES, [] if chosen.table else chosen.only, describe_environment())


if __name__ == "__main__":
    sys.exit(main())
