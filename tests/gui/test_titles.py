"""How measures are written within a line."""

from __future__ import annotations

import pytest

from gui.titles import rank_titles, short_measure, short_title
from tests.gui.sources.devices.snapshots import UUIDS


@pytest.mark.parametrize(
    ("title", "short"),
    [
        ("Top-1 accuracy", "top-1"),
        ("Mean IoU", "mean IoU"),
        ("Validation loss", "validation loss"),
        ("IoU", "IoU"),
        ("F1", "F1"),
        ("mAP", "mAP"),
        ("AP50", "AP50"),
        ("ODS F-measure", "ODS F-measure"),
    ],
)
def test_lower_keeps_abbreviations(title: str, short: str) -> None:
    assert short_title(title) == short


def test_metric_has_its_unit() -> None:
    assert short_measure("road_extraction", "iou", 0.1038) == "IoU 10.4 %"
    assert short_measure("classification", "loss", 0.5) == "validation loss 0.5000"


def test_ranks_are_named_by_device_or_worker() -> None:
    assert rank_titles(("cpu",)) == ("CPU",)
    assert rank_titles(("cpu", "cpu")) == ("CPU worker 0", "CPU worker 1")
    assert rank_titles(UUIDS[:2], {UUIDS[0]: "GPU 3"}) == ("GPU 3", f"{UUIDS[1][:12]}…")
