"""The files of a search: those of versions that knew fewer fields are read as well."""

from __future__ import annotations

import msgspec
import pytest

from engine.contract.search import Search, SearchState, Trial, TrialRow
from tests.support.made_searches import a_search, a_state

NEW = ("confirm", "again", "confirmed", "candidates", "baseline", "repeats", "confirming_s")
TRIAL = Trial(search="flowers", number=3, params={"learning_rate": 0.1}, seed=3)


@pytest.mark.parametrize("kept", [a_search(), a_state(5), TRIAL], ids=["search.json", "state.json", "trial.json"])
def test_that_files_without_confirmation_are_read(kept: Search | SearchState | Trial) -> None:
    plain = msgspec.to_builtins(kept)
    for table in (plain, *plain.get("trials", ())):
        for name in NEW:
            table.pop(name, None)
    assert msgspec.convert(plain, type(kept)) == kept


def test_that_a_repeat_is_called_by_its_trial_and_its_seed() -> None:
    row = TrialRow(number=41, run_id="", state="running", params={"seed": 2}, values=(None,), epochs=3, again=7)
    assert row.title == "7, seed 2"
    assert a_state(3).trials[2].title == "2"
    assert SearchState(time=0.0, trials=(row,), total=45, repeats=4).own_total == 41
