from pathlib import Path

import pytest

from engine.data.formats.cvat import FORMAT
from tests.support.dataset_formats import cvat as writer
from tests.support.round_trip import check_round_trip


@pytest.mark.parametrize("variant", writer.VARIANTS)
def test_cvat_equals_the_truth(tmp_path: Path, variant: str) -> None:
    check_round_trip(FORMAT, writer, variant, tmp_path)
