"""The numbers of devices and times of day, as the window writes them."""

from __future__ import annotations

import time

from gui.format import clock, size_of

NOON = 1_700_000_000.0


def test_that_what_is_used_and_what_there_is_have_one_unit() -> None:
    assert size_of(41 << 30, 141 << 30) == "41.0 of 141.0 GiB"
    assert size_of(None, 141 << 30) == "– of 141.0 GiB"
    assert size_of(41 << 30, None) == "41.0 GiB"


def test_that_a_time_of_another_day_has_its_date() -> None:
    assert len(clock(NOON, NOON)) == len("14:02:31")
    assert clock(NOON, NOON + 86_400) == time.strftime("%d %b ", time.localtime(NOON)) + clock(NOON, NOON)
