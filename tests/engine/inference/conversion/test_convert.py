"""A run's model converted: what is written gives what the model gives, wherever it is opened."""

from __future__ import annotations

import pytest

from engine.contract.inference.conversion import ConvertOrder, OnnxOptions, read_converted
from engine.inference.conversion.convert import convert
from tests.support.consent import agreed
from tests.support.trained_runs import COUNTING, DATASETS


@pytest.mark.parametrize("task", list(DATASETS))
def test_each(task, trained, tmp_path):
    of = trained(task)
    agreed(COUNTING)
    said = []
    opts = OnnxOptions(int8=task in ("classification", "segmentation"))
    made = read_converted(
        convert(
            ConvertOrder(
                run=str(of.run.path),
                checkpoint="last",
                to=("onnx", "safetensors"),
                out=str(tmp_path / "out.zip"),
                packed=True,
                onnx=opts,
            ),
            said.append,
        )
    )
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(made)).decode())
    import zipfile

    zipfile.ZipFile(tmp_path / "out.zip").extractall("/tmp/out_" + task)
