"""Alert rules and their storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from gui.alerts.rules import DEFAULTS, KINDS, KindId, Rule, RuleStore, describe_rule, find_problems, format_duration


def test_default_rules_are_valid() -> None:
    for kind, rule in DEFAULTS.items():
        assert find_problems(rule) == ()
        assert rule.kind == kind == KINDS[kind].id
        assert KINDS[kind].meaning
        assert KINDS[kind].remedy
    assert [find_problems(Rule(kind="temperature", threshold=limit)) for limit in (20, 130)] == [(), ()]
    assert find_problems(Rule(kind="lost", for_s=86_400)) == ()


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("temperature", {"threshold": 7}),
        ("temperature", {"threshold": float("nan")}),
        ("memory", {"threshold": None}),
        ("power", {"threshold": 1e9}),
        ("lost", {"for_s": -1}),
        ("lost", {"for_s": float("nan")}),
        ("lost", {"for_s": 100_000}),
        ("xid", {"devices": ()}),
    ],
)
def test_problems_of_invalid_rule(kind: KindId, changes: dict[str, Any]) -> None:
    (found,) = find_problems(Rule(kind=kind, **changes))
    assert found.field == next(iter(changes))
    assert found.remedy


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (DEFAULTS["temperature"], "at or above the GPU's slowdown temperature for 10 s"),
        (Rule(kind="temperature", threshold=80, notify=False), "at or above 80 °C · no notification"),
        (DEFAULTS["idle"], "below 5% for 10 min"),
        (Rule(kind="xid", notify=False), "as soon as it happens · no notification"),
        (Rule(kind="xid", devices=("a",)), "as soon as it happens · 1 device only"),
        (Rule(kind="not_answering", devices=("a",)), "as soon as it happens"),
        (Rule(kind="xid", on=False, notify=False), "as soon as it happens"),
        (
            Rule(kind="lost", devices=("a", "b"), notify=False),
            "as soon as it happens · 2 devices only · no notification",
        ),
    ],
)
def test_summary_of_rule(rule: Rule, expected: str) -> None:
    assert describe_rule(rule) == expected


def test_length_units() -> None:
    assert [format_duration(seconds) for seconds in (0.5, 10, 60, 90, 600)] == [
        "0.5 s",
        "10 s",
        "1 min",
        "90 s",
        "10 min",
    ]


def test_rule_store_round_trip(tmp_path: Path) -> None:
    changed = Rule(kind="power", on=True, threshold=450.5, for_s=30, notify=True, devices=("GPU-1", "box/GPU-2"))
    assert RuleStore(tmp_path / "home").save({**DEFAULTS, "power": changed}) == ""
    assert RuleStore(tmp_path / "home").load() == ({**DEFAULTS, "power": changed}, "")


def test_rule_store_missing_rule_is_default(tmp_path: Path) -> None:
    saved = Rule(kind="lost", on=False)
    RuleStore(tmp_path).path.write_bytes(msgspec.json.encode({"rules": [saved]}))
    assert RuleStore(tmp_path).load() == ({**DEFAULTS, "lost": saved}, "")


@pytest.mark.parametrize(
    "text",
    [b"{", b"[]", b'{"rules": [{"kind": "weather"}]}', b'{"rules": [{"kind": "temperature", "threshold": 9000}]}'],
)
def test_rule_store_moves_damaged_file(tmp_path: Path, text: bytes) -> None:
    store = RuleStore(tmp_path)
    store.path.write_bytes(text)
    rules, problem = store.load()
    assert rules == DEFAULTS
    assert "alerts.json.damaged" in problem
    assert (tmp_path / "alerts.json.damaged").read_bytes() == text
    assert store.load() == (DEFAULTS, "")


def test_rule_store_reports_unusable_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert RuleStore(tmp_path / "file").save(DEFAULTS)
    store = RuleStore(tmp_path)
    store.path.mkdir()
    rules, problem = store.load()
    assert rules == DEFAULTS
    assert problem
    assert store.path.is_dir()
