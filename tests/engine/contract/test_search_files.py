"""Search files. They must contain no default values."""

from __future__ import annotations

import msgspec
import pytest

from engine.contract.search import Search, SearchState, Trial, TrialRow
from tests.support.made_searches import make_search_config, make_state

NEW = ("confirm", "repeat_of", "confirmed", "candidates", "baseline", "repeats", "confirming_s")
TRIAL = Trial(search="flowers", number=3, params={"learning_rate": 0.1}, seed=3)


@pytest.mark.parametrize(
    "content", [make_search_config(), make_state(5), TRIAL], ids=["search.json", "state.json", "trial.json"]
)
def test_search_file_without_confirmation_is_read(content: Search | SearchState | Trial) -> None:
    plain = msgspec.to_builtins(content)
    for table in (plain, *plain.get("trials", ())):
        for name in NEW:
            table.pop(name, None)
    assert msgspec.convert(plain, type(content)) == content


def test_repeat_title_names_trial_and_seed() -> None:
    row = TrialRow(number=41, run_id="", state="running", params={"seed": 2}, values=(None,), epochs=3, repeat_of=7)
    assert row.title == "7, seed 2"
    assert make_state(3).trials[2].title == "2"
    assert SearchState(time=0.0, trials=(row,), total=45, repeats=4).originals_total == 41


def test_best_value_is_the_first_goal_or_the_mean_of_repeats() -> None:
    first = TrialRow(number=1, run_id="", state="completed", params={}, values=(0.9, 7.0), epochs=3)
    second = msgspec.structs.replace(first, number=2, values=(0.8, 5.0), confirmed=(0.7, 0.6))
    state = SearchState(time=0.0, trials=(first, second))
    assert [msgspec.structs.replace(state, best=best).best_value for best in (1, 2, None)] == [
        0.9,
        pytest.approx(0.65),
        None,
    ]
