"""Options that a task, a model or a strategy declares for the form, the flags and the checks.

A declaration is a msgspec Struct with annotated fields like those of `Job`::

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        width: Annotated[int, option("Width", "Channels of the first layer.", ge=1, le=1024)] = 32

The values for a job are in `Job.options`, the table [options] in job.toml.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec
from msgspec import Meta

from engine.contract.job import FIELDS, Job
from engine.contract.job_fields import About, Field, create_value_problem, describe
from engine.contract.problems import Problem

Struct = TypeVar("Struct", bound=msgspec.Struct)
_WRONG_TYPE = "the option {} is neither an int, a float, a bool, a str nor a Literal of texts"
_TYPES = {"int": int, "float": float, "bool": bool, "text": str}


def option(label: str, help_text: str, *, resume: bool = False, **limits: Any) -> Meta:
    """Return the annotation of an option, whose type must be int, float, bool, str or a Literal of texts.

    Args:
        label: Name of the option in the form.
        help_text: Help for users.
        resume: True if the value may change when a run is resumed.
        **limits: Limits of a number: its minimum `ge` and its maximum `le`.

    Raises:
        TypeError: There are other limits.
    """
    if not limits.keys() <= {"ge", "le"}:
        raise TypeError(f"an option has no limits but ge and le: {', '.join(limits)}")
    return Meta(title=label, description=help_text, extra={"traits": ["resume"] if resume else []}, **limits)


def list_options(declaration: type[msgspec.Struct] | None) -> tuple[Field, ...]:
    """Return the options that a Struct declares as fields, or () for None.

    Raises TypeError for a field that can't be an option.
    """
    if declaration is None:
        return ()
    fields = tuple(map(_describe_option, msgspec.structs.fields(declaration)))
    for field in fields:
        if field.kind not in _TYPES and field.kind != "choice":
            raise TypeError(_WRONG_TYPE.format(field.name))
        if field.name in FIELDS:
            raise TypeError(f"{field.name} is a field of every job")
        if field.default is msgspec.NODEFAULT:
            raise TypeError(f"the option {field.name} has no default")
    return fields


def _describe_option(info: msgspec.structs.FieldInfo) -> Field:
    """Describe the option that a field of a Struct declares, as a job field of the group "model".

    Raises TypeError if it isn't annotated by `option`, or has a type that job fields can't have.
    """
    try:
        _, meta = get_args(info.type)
        about = About(meta.title, meta.description, frozenset(meta.extra["traits"]))
    except (AttributeError, TypeError, ValueError):
        raise TypeError(f"the option {info.name} is not annotated by option()") from None
    try:
        return describe(info.name, info, about, group="model")
    except ValueError:
        raise TypeError(_WRONG_TYPE.format(info.name)) from None


def options_of(job: Job, declaration: type[Struct]) -> Struct:
    """Return the plug-in options of a job that the Struct `declaration` declares. Other options are ignored.

    Raises:
        msgspec.ValidationError: A value is invalid.
    """
    names = declaration.__struct_fields__
    return msgspec.convert({name: value for name, value in job.options.items() if name in names}, declaration)


def option_problems(options: Mapping[str, Any], known: Sequence[Field]) -> list[Problem]:
    """Return the problems with the options of a job, given the options that its task, model and strategy declare."""
    fields = {field.name: field for field in known}
    found = (_find_option_problem(name, value, fields) for name, value in options.items())
    return [problem for problem in found if problem is not None]


def _find_option_problem(name: str, value: Any, fields: Mapping[str, Field]) -> Problem | None:
    """Return the problem with the value of the option `name`, or None if it is valid.

    `fields` are the known options.
    """
    problem_field = f"options.{name}"
    if name not in fields:
        remedy = f"Available: {', '.join(fields)}." if fields else "Remove it: none of them has options."
        return Problem(problem_field, f"Neither task, model nor strategy has an option “{name}”.", remedy)
    field = fields[name]
    valid_type: Any = Literal[field.choices]
    if not field.choices:
        valid_type = Annotated[_TYPES[field.kind], Meta(ge=field.minimum, le=field.maximum)]
    try:
        msgspec.convert(value, valid_type)
    except msgspec.ValidationError:
        return create_value_problem(field, problem_field, value)
    return None
