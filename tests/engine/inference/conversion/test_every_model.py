"""ONNX conversion of briefly trained models of every kind, compared in fp32 with a tolerance of 1e-4."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from engine.contract.inference.conversion import ConvertRequest, read_converted
from engine.inference.conversion.convert import convert
from tests.support.trained_runs import train_small_model
from tests.support.worker_group import Forker

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]

CLASSIFIERS = {
    "resnet18": 64,
    "vit_b_16": 64,
    "convnext_tiny": 64,
    "efficientnet_b0": 64,
    "timm:convnextv2_atto": 64,
    "timm:tf_efficientnet_lite0": 64,
    "timm:vit_tiny_patch16_224": 64,
}
PIXELS: dict[str, dict[str, Any]] = {
    "unet": {"encoder": "resnet18", "image_size": 64},
    "deeplabv3_mobilenet_v3_large": {"image_size": 64},
    "segformer": {"encoder": "resnet18", "image_size": 64},
}
DETECTORS: dict[str, dict[str, Any]] = {
    # Its BatchNorm takes in a thirty-third of each batch: until it knows the features' spread, all scores are the same, and tie.
    "ssdlite320_mobilenet_v3_large": {"image_size": 320, "epochs": 80},
    **{
        model: {"encoder": "tu-mobilenetv3_small_050", "image_size": 64}
        for model in ("fasterrcnn", "retinanet", "fcos")
    },
    "fasterrcnn_mobilenet_v3_large_320_fpn": {"image_size": 128},
    "fcos_resnet50_fpn": {"image_size": 128},
}
CASES: list[tuple[str, dict[str, Any]]] = [
    *(("classification", {"model": model, "image_size": size}) for model, size in CLASSIFIERS.items()),
    *(("segmentation", {"model": model, **fields}) for model, fields in PIXELS.items()),
    *(("detection", {"model": model, "epochs": 3} | fields) for model, fields in DETECTORS.items()),
    (
        "instance_segmentation",
        {"model": "maskrcnn", "encoder": "tu-mobilenetv3_small_050", "image_size": 64, "epochs": 3},
    ),
    ("edge_detection", {"model": "hed", "image_size": 64, "learning_rate": 1e-4}),
    ("edge_detection", {"model": "hed_encoder", "encoder": "tu-tf_efficientnet_lite0", "image_size": 64}),
    ("road_extraction", {"model": "linknet_mtl", "encoder": "tu-tf_efficientnet_lite0", "image_size": 64}),
    ("road_extraction", {"model": "hourglass_mtl", "image_size": 64}),
    ("point_segmentation", {"model": "pointcnn_x1"}),
]


@pytest.mark.parametrize(("task", "fields"), CASES, ids=[fields["model"] for _, fields in CASES])
def test_onnx_matches_the_model(task: str, fields: dict[str, Any], forker: Forker, tmp_path: Path) -> None:
    of = train_small_model(forker, tmp_path, task, **fields)
    request = ConvertRequest(run=str(of.run.path), checkpoint="last", to=("onnx",), out=str(tmp_path / "out"))
    result = read_converted(convert(request, lambda message: None))
    (compared,) = result.compared
    differences = [each.difference / max(1.0, each.largest_output) for each in compared.differences]
    assert max(differences) <= 1e-4
    for name, value in compared.torch_measures.items():
        assert compared.measures[name] == pytest.approx(value, abs=1e-3, rel=1e-3)
    if "CONVERSION_TABLE" in os.environ:  # a file for the measurements, with a line per model
        line = {"model": fields["model"], "difference": max(differences), "seconds": result.seconds}
        line |= {"unmatched": sum(each.unmatched for each in compared.differences)}
        line |= {"file_ms": compared.milliseconds, "torch_ms": compared.torch_milliseconds}
        with Path(os.environ["CONVERSION_TABLE"]).open("a") as table:
            table.write(json.dumps(line) + "\n")
