"""Messages from child processes that execute a request.

Such a process reads one request as JSON from its standard input up to the end of the stream, and prints one message
per line: any number of `Progress`, and finally `Done` or `Refused`.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from engine.contract.problems import Problem

Answer = TypeVar("Answer")


class Progress(msgspec.Struct, tag="progress", tag_field="type", frozen=True, forbid_unknown_fields=True):
    """Progress of the work that a child process does for its request.

    `fraction` is from 0 to 1, and `what` describes the current activity. `seconds_left` and `images_per_second` (of all
    devices together) are None while unknown. `warnings` lists the warnings since the previous message.
    """

    fraction: float
    what: str
    seconds_left: float | None = None
    images_per_second: float | None = None
    warnings: tuple[str, ...] = ()


class Done(msgspec.Struct, Generic[Answer], tag="done", tag_field="type", frozen=True, forbid_unknown_fields=True):
    """Last message of a child process that succeeded, with the answer to its request."""

    answer: Answer


class Refused(msgspec.Struct, tag="refused", tag_field="type", frozen=True, forbid_unknown_fields=True):
    """Last message of a child process that could not execute its request, with all problems."""

    problems: tuple[Problem, ...]
