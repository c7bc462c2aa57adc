"""Arguments, flags, defaults and help of all commands, compared with a golden file.

`FOOTPLATE_WRITE_TEXTS=1 pytest -n 0 tests/engine/cli/test_golden_flags.py` writes the file again. Review its diff.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from engine.cli.main import create_parser
from tests.support.golden import check_file

GOLDEN = Path(__file__).with_name("golden_flags.txt")


def test_commands_and_flags_match_the_golden_file() -> None:
    check_file(GOLDEN, "\n".join(describe("footplate", create_parser(), set())) + "\n")


def describe(command: str, described: argparse.ArgumentParser, listed: set[str]) -> Iterator[str]:
    """Yield a line for `command`, for each of its arguments, and for its subcommands with their arguments.

    `described` is the parser of the command. `listed` contains the lines of all arguments so far and is extended. For
    an argument whose line is already in it, only the name is listed, in a final line "as above".
    """
    defaults = {name: getattr(value, "__qualname__", value) for name, value in described._defaults.items()}
    given = ", ".join(f"{name}={value}" for name, value in defaults.items() if name != "names")
    abbreviations = "" if described.allow_abbrev else ", no abbreviations"
    yield f"== {command} [{given}{abbreviations}]: {' '.join((described.description or '').split())}"
    repeated, hidden = [], []
    for action in described._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help for choice in action._choices_actions}
            for name, command_parser in action.choices.items():
                yield f"{name}: {helps.get(name, 'not listed')}"
                yield from describe(f"{command} {name}", command_parser, listed)
        elif action.help == argparse.SUPPRESS:
            hidden.append(action.option_strings[0])
        elif not isinstance(action, argparse._HelpAction):
            line = argument_line(action)
            if line in listed:
                repeated.append(line.split()[0].rstrip(","))
            else:
                yield line
            listed.add(line)
    if hidden:
        yield f"  hidden: {' '.join(sorted(hidden))}"
    if repeated:
        yield f"  as above: {' '.join(repeated)}"


def argument_line(action: argparse.Action) -> str:
    kind = type(action).__name__.strip("_").removesuffix("Action")
    values = {"nargs": action.nargs, "type": getattr(action.type, "__name__", None), "default": action.default}
    given = [f"{name}={value!r}" for name, value in values.items() if value is not None]
    name = ", ".join(action.option_strings) or action.dest
    return f"  {name} [{' '.join([kind, *given])}] {action.metavar or ''}: {action.help}"
