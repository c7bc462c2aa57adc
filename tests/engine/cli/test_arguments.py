"""Values of flags, converted to the types of their fields."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest

from engine.cli.arguments import parse_value
from engine.contract.job_fields import Field

CASES: dict[str, dict[str | bool, Any]] = {
    "text": {"7": "7", "": ""},
    "choice": {"7": "7", "": ""},
    "bool": {True: True, False: False},
    "int": {"7": 7, "-7": -7, "7.5": "7.5", "many": "many", "": ""},
    "float": {"7": 7.0, "1e-3": 0.001, "much": "much", "": ""},
    "list": {"a, 7,,b c": ["a", "7", "b c"], "": []},
    "ints": {"1, 7,,": [1, 7], "1,-7,a": [1, "-7", "a"], "": []},
}


def test_parse_value_has_cases_for_every_kind() -> None:
    assert set(CASES) == set(get_args(get_type_hints(Field)["kind"]))


@pytest.mark.parametrize(("kind", "given"), [(kind, given) for kind, cases in CASES.items() for given in cases])
def test_parse_value_converts_valid_text(kind: Any, given: str | bool) -> None:
    field = Field(name="f", label="F", help="", group="main", kind=kind, default=None)
    assert _typed(parse_value(field, given)) == _typed(CASES[kind][given])


@pytest.mark.parametrize("kind", ["int", "float"])
def test_empty_text_unsets_optional_numbers(kind: Any) -> None:
    field = Field(name="f", label="F", help="", group="main", kind=kind, default=1, optional=True)
    assert (parse_value(field, ""), parse_value(field, "0")) == (None, 0)


def _typed(value: Any) -> tuple[type, Any]:
    return type(value), value
