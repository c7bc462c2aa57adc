"""Checks of the search space of a hyperparameter search."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from engine.contract.catalogue import Catalogue
from engine.contract.job import FIELDS, Field, Job, create_value_problem, job_from_values
from engine.contract.options import option_problems
from engine.contract.problems import Problem
from engine.contract.search import FIXED, OPTION, SEARCHABLE, Choices, Dimension, Range

MAX_COMBINATIONS = 100_000
"""Maximum number of combinations in a grid search."""

_RANGE_KEYS = ("low", "high", "log", "step")


def field_of(job: Job, name: str, catalogue: Catalogue) -> Field | None:
    """Return the job field or option that the dimension `name` of a search space varies, or None if it is unknown."""
    if not name.startswith(OPTION):
        return FIELDS.get(name)
    options = catalogue.options_of(job.task, job.model.name, job.resolved_strategy)
    return next((field for field in options if field.name == name.removeprefix(OPTION)), None)


def list_grid_values(dimension: Dimension, field: Field | None) -> tuple[Any, ...] | None:
    """Return all values of a dimension for a grid search. The step of a range of integers is 1 by default.

    Returns None for another range without a step, and for more than `MAX_COMBINATIONS` values.
    """
    if isinstance(dimension, Choices):
        return dimension.values
    step = dimension.step
    if step is None and not dimension.log and field is not None and field.kind == "int":
        step = 1
    if step is None:
        return None
    # The factor compensates for rounding errors, so that `high` is included.
    count = math.floor((dimension.high - dimension.low) / step * (1 + 1e-9)) + 1
    return tuple(dimension.low + step * index for index in range(count)) if count <= MAX_COMBINATIONS else None


def parse_space(given: Any, job: Job, catalogue: Catalogue, found: list[Problem]) -> dict[str, Dimension]:
    """Parse the search space `given` by the user. Return its valid dimensions by name, and add problems to `found`."""
    if not isinstance(given, Mapping) or not given:
        remedy = "Add a table [space] with a line such as learning_rate = { low = 1e-4, high = 1e-1, log = true }."
        found.append(Problem("space", "The search has nothing to vary.", remedy))
        return {}
    space: dict[str, Dimension] = {}
    for name, values in given.items():
        field = field_of(job, name, catalogue)
        if field is None or name in FIXED:
            found.append(_create_unsearchable_problem(name, job, catalogue))
            continue
        wrong: list[Problem] = []
        parse_dimension = _parse_range if isinstance(values, Mapping) else _parse_choices
        dimension = parse_dimension(name, field, values, wrong)
        found += wrong
        if dimension is not None:
            space[name] = dimension
    return space


def _create_unsearchable_problem(name: str, job: Job, catalogue: Catalogue) -> Problem:
    """Return the problem with a field that is unknown, or that a search can't vary."""
    problem_field = f"space.{name}"
    if name in FIXED:
        message = f"{FIELDS[name].label} can't be searched: trials could not be compared, or would all be the same."
        return Problem(problem_field, message, "Set it in the job.")
    options = [OPTION + field.name for field in catalogue.options_of(job.task, job.model.name, job.resolved_strategy)]
    near = difflib.get_close_matches(name, [*SEARCHABLE, *options], n=1)
    hint = f"Did you mean “{near[0]}”?" if near else "`footplate train --help` lists the fields."
    return Problem(problem_field, f"“{name}” is not a field of this job.", hint)


def _parse_range(name: str, field: Field, given: Mapping[str, Any], found: list[Problem]) -> Range | None:
    """Return the range described by a table in the search space.

    If the table is invalid, problems are added to `found`, which must be empty, and None is returned.
    """
    problem_field = f"space.{name}"

    def refuse(message: str, remedy: str) -> None:
        found.append(Problem(problem_field, message, remedy))

    if field.kind not in ("int", "float"):
        refuse(f"{field.label} has no range.", f"List its values: {name} = [{_example_values(field)}].")
        return None
    unknown = [key for key in given if key not in _RANGE_KEYS]
    missing = [key for key in ("low", "high") if key not in given]
    if unknown or missing:
        defect = f"has no “{missing[0]}”" if missing else f"has an unknown “{unknown[0]}”"
        refuse(f"The range of {field.label.lower()} {defect}.", "Give low, high, and maybe log or step.")
        return None
    low, high = (_convert_value(problem_field, name, field, given[key], found) for key in ("low", "high"))
    log, step = given.get("log", False), given.get("step")
    if found:
        return None
    if not isinstance(log, bool):
        refuse(f"log = {log!r} is neither true nor false.", "Give true or false.")
    elif low is None or high is None or low >= high:
        refuse(f"The range from {low} to {high} is empty.", "Give a low that is below high.")
    elif log and low <= 0:
        refuse("A logarithmic range can't begin at 0.", "Give a low above 0, or leave log away.")
    elif step is not None and not _is_step(step, field, low, high):
        refuse(f"step = {step!r} does not fit the range.", f"Give a step of at most {high - low:g}.")
    elif log and step is not None and step != 1:
        refuse("A logarithmic range has no steps.", "Leave out log or step.")
    return None if found else Range(low=low, high=high, log=log, step=step)


def _is_step(step: Any, field: Field, low: float, high: float) -> bool:
    """Return True if `step` is a positive number of the field's type that fits between `low` and `high`."""
    types = int if field.kind == "int" else int | float
    return isinstance(step, types) and not isinstance(step, bool) and 0 < step <= high - low


def _parse_choices(name: str, field: Field, given: Any, found: list[Problem]) -> Choices | None:
    """Convert a list of values for the field `name` to choices.

    If it is invalid, problems are added to `found`, which must be empty, and None is returned.
    """
    problem_field = f"space.{name}"
    if not isinstance(given, list | tuple):
        remedy = "Give a list of values, or of numbers a table with low and high."
        found.append(Problem(problem_field, f"{field.label}: {given!r} is neither a list nor a range.", remedy))
        return None
    values = tuple(_convert_value(problem_field, name, field, each, found) for each in given)
    distinct_count = len(set(map(repr, values)))  # not of the values themselves, since 1 equals True
    if not found and distinct_count < 2:
        message = f"{field.label} needs at least two different values."
        found.append(Problem(problem_field, message, "List others, or set it in the job."))
    elif not found and distinct_count < len(values):
        found.append(Problem(problem_field, f"{field.label} lists a value twice.", "List each value once."))
    return None if found else Choices(values=values)


def _convert_value(problem_field: str, name: str, field: Field, given: Any, found: list[Problem]) -> Any:
    """Convert the value `given` for the job field or option `name` to its type. The text "none" clears it if allowed.

    The value of an option is validated, but not converted. Problems are added to `found`, with `problem_field` as their
    field. Returns None for an invalid value of a job field.
    """
    if field.optional and given in ("none", ""):
        given = None
    if name.startswith(OPTION):
        value, problems = given, option_problems({field.name: given}, (field,))
    else:
        job, problems = job_from_values({name: given})  # converts and validates the value
        value = job.value(name) if job is not None else None
    if isinstance(value, float) and not math.isfinite(value):
        problems = [create_value_problem(field, name, value)]
    found += [Problem(problem_field, problem.message, problem.remedy) for problem in problems]
    return value


def _example_values(field: Field) -> str:
    """Return a few values of a field in TOML, or "…" for a field without choices."""
    if field.kind == "bool":
        return "false, true"
    return ", ".join(f'"{choice}"' for choice in islice(field.choices, 3)) or "…"


def grid_problems(
    space: Mapping[str, Dimension], combinations: int, job: Job, catalogue: Catalogue
) -> Iterator[Problem]:
    """Yield problems with a grid search: ranges without a usable step, and too many combinations.

    `combinations` is the number of combinations of the values in `space`.
    """
    for name, dimension in space.items():
        if list_grid_values(dimension, field_of(job, name, catalogue)) is None:
            assert isinstance(dimension, Range)  # choices always have values
            remedy = f"Give it a step, or list its values: {name} = [{dimension.low:g}, {dimension.high:g}]."
            yield Problem(f"space.{name}", "A grid needs single values, and this range has none.", remedy)
    if combinations > MAX_COMBINATIONS:
        message = f"The grid has {combinations:,} combinations."
        yield Problem("sampler", message, f"Use at most {MAX_COMBINATIONS:,}, or the sampler tpe.")
