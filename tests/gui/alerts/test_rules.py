"""Alert rules and their storage."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from engine.gpus.xid_words import xid_words
from gui.alerts.rule_store import RuleStore
from gui.alerts.rules import DEFAULTS, KINDS, Rule, length, problems, summary


def test_default_rules_are_valid() -> None:
    for kind, rule in DEFAULTS.items():
        assert problems(rule) == ()
        assert rule.kind == kind == KINDS[kind].id
        assert KINDS[kind].meaning
        assert KINDS[kind].remedy


@pytest.mark.parametrize(
    ("rule", "field", "remedy"),
    [
        (
            Rule(kind="temperature", threshold=7),
            "threshold",
            "from 20 to 130 °C, or nothing for the GPU's own slowdown",
        ),
        (Rule(kind="temperature", threshold=float("nan")), "threshold", "from 20"),
        (Rule(kind="memory", threshold=None), "threshold", "from 1 to 100 %."),
        (Rule(kind="power", threshold=1e9), "threshold", "from 1 to 5,000 W"),
        (Rule(kind="lost", for_s=-1), "for_s", "from 0"),
        (Rule(kind="lost", for_s=float("nan")), "for_s", "from 0"),
        (Rule(kind="lost", for_s=100_000), "for_s", "to one day"),
        (Rule(kind="xid", devices=()), "devices", "at least one"),
    ],
)
def test_problems_of_invalid_rule(rule: Rule, field: str, remedy: str) -> None:
    (found,) = problems(rule)
    assert found.field == field
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (DEFAULTS["temperature"], "at or above its own slowdown temperature for 10 s · notification"),
        (Rule(kind="temperature", threshold=80, notify=False), "at or above 80 °C"),
        (DEFAULTS["idle"], "below 5 % for 10 min · notification"),
        (Rule(kind="xid", notify=False), "as soon as it happens"),
        (Rule(kind="xid", devices=("a",)), "as soon as it happens · 1 device only · notification"),
        (Rule(kind="lost", devices=("a", "b"), notify=False), "as soon as it happens · 2 devices only"),
    ],
)
def test_summary_of_rule(rule: Rule, told: str) -> None:
    assert summary(rule) == told


@pytest.mark.parametrize(
    ("seconds", "told"), [(10, "10 s"), (60, "1 min"), (90, "90 s"), (600, "10 min"), (0.5, "0.5 s")]
)
def test_length_units(seconds: float, told: str) -> None:
    assert length(seconds) == told


def test_xid_words_of_common_xid() -> None:
    assert xid_words(79) == "Xid 79: the GPU has fallen off the bus"
    assert xid_words(999) == "Xid 999"


def test_rule_store_round_trip(tmp_path: Path) -> None:
    changed = Rule(kind="power", on=True, threshold=450.5, for_s=30, notify=True, devices=("GPU-1", "box/GPU-2"))
    assert RuleStore(tmp_path / "home").save({**DEFAULTS, "power": changed}) == ""
    rules, problem = RuleStore(tmp_path / "home").load()
    assert problem == ""
    assert rules == {**DEFAULTS, "power": changed}


def test_rule_store_missing_rule_is_default(tmp_path: Path) -> None:
    kept = Rule(kind="lost", on=False)
    RuleStore(tmp_path).path.write_bytes(msgspec.json.encode({"rules": [kept]}))
    rules, problem = RuleStore(tmp_path).load()
    assert (rules["lost"], rules["xid"], problem) == (kept, DEFAULTS["xid"], "")


@pytest.mark.parametrize(
    "text",
    [b"{", b"[]", b'{"rules": [{"kind": "weather"}]}', b'{"rules": [{"kind": "temperature", "threshold": 9000}]}'],
)
def test_rule_store_moves_damaged_file(tmp_path: Path, text: bytes) -> None:
    store = RuleStore(tmp_path)
    store.path.write_bytes(text)
    rules, problem = store.load()
    assert rules == DEFAULTS
    assert "damaged" in problem
    assert "alerts.json.damaged" in problem
    assert (tmp_path / "alerts.json.damaged").read_bytes() == text
    assert store.load() == (DEFAULTS, "")


def test_rule_store_unwritable_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "can't be saved" in RuleStore(tmp_path / "file").save(DEFAULTS)


def test_rule_store_unreadable_file(tmp_path: Path) -> None:
    store = RuleStore(tmp_path)
    store.path.mkdir()
    rules, problem = store.load()
    assert rules == DEFAULTS
    assert "Can't read" in problem
    assert store.path.is_dir()
