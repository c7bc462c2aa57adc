"""Model card of a converted model, compared with a golden file.

`FOOTPLATE_WRITE_TEXTS=1 pytest -n 0 tests/engine/inference/conversion/test_card.py` writes the file again. Review its
diff.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from engine.contract.events import Event, Planned, Validation
from engine.contract.inference.conversion import ComparedFile, Difference, OnnxOptions, WrittenFile
from engine.contract.inference.evaluation import EVALUATION_FILE, Evaluation, Interval
from engine.contract.protocol import ENCODE
from engine.inference.conversion.card import compose_model_card, suggest_onnx_commands, upload_command, write_curves
from engine.inference.conversion.exportable import Exportable, prepare_for_export
from engine.inference.conversion.weights_file import Library
from engine.inference.trained_model import TrainedModel
from engine.runs.evaluations import FOLDER
from engine.runs.folder import RunFolder
from engine.system.plugins import footplate_version
from tests.support.golden import check_file
from tests.support.plain_models import make_trained_model

GOLDEN = Path(__file__).with_name("golden_card.md")
PLANNED = Planned(
    epochs=9,
    steps_per_epoch=3,
    train_images=12_000,
    val_images=340,
    classes=("a", "b", "c"),
    image_size=16,
    parameters=8,
    trainable_parameters=8,
)


def validation(epoch: int, **measures: float) -> Validation:
    return Validation(epoch=epoch, step=epoch, measures=measures, images=1, seconds=1.0)


def make_model_of_run(folder: Path, task: str, *events: Event, **fields: object) -> TrainedModel:
    """Return a model for `task`, and write `events` to the log of its run in `folder`.

    `fields` override fields of the job.
    """
    model = make_trained_model(task, nn.Linear(3, 2), **fields)
    model.run = RunFolder(folder)
    model.run.events_file.write_bytes(b"".join(ENCODE.encode(event) + b"\n" for event in events))
    return model


def write_evaluation(model: TrainedModel, name: str, dataset: str, top1: float, sha256: str = "0") -> None:
    folder = model.run.path / FOLDER / name
    folder.mkdir(parents=True)
    evaluation = Evaluation(
        id=name,
        date=f"2026-01-01T00:00:{len(list(folder.parent.iterdir())):02}Z",
        run=model.run.run_id,
        task=model.job.task,
        checkpoint="last.pt",
        sha256=sha256,
        dataset=dataset,
        split="test",
        classes=model.classes,
        samples=70,
        measures={"top1": Interval(value=top1, low=None, high=None)},
    )
    (folder / EVALUATION_FILE).write_bytes(msgspec.json.encode(evaluation))


def file(name: str, size_bytes: int) -> WrittenFile:
    return WrittenFile(name=name, what=f"what {name} is", size_bytes=size_bytes, sha256="")


def compose_full_card(folder: Path) -> str:
    """Return the card of a classifier with all files, comparisons, evaluations and commands."""
    model = make_model_of_run(
        folder,
        "classification",
        PLANNED,
        validation(1, top1=0.0, top5=0.5, loss=2.0),
        validation(2, top1=0.6, top5=0.0, loss=1.5),
        model="resnet18",
        dataset="/home/somebody/flowers",
        pretrained=True,
        val_crop=0.5,
        learning_rate=0.037,
        milestones=(3, 5),
    )
    for name, dataset, top1, sha256 in (
        ("20260101-000000-test", "/a/tulips", 0.11, "0"),
        ("20260102-000000-test", "/a/tulips", 0.22, "0"),
        ("20260103-000000-test", "/a/tulips", 0.33, "1"),
        ("20260104-000000-test", "/a/roses", 0.44, "0"),
    ):
        write_evaluation(model, name, dataset, top1, sha256)
    compared = [
        ComparedFile(
            name=name,
            runtime=f"onnxruntime 1.{number}",
            compared_on="random" if number else "validation",
            differences=tuple(
                Difference(batch_size=size, difference=difference, largest_output=1.0)
                for size, difference in ((1, 1e-7), (3, 2e-6 * (1 + number)))
            ),
            samples=50 + number,
            measures={} if number == 2 else {"top1": 0.7 + 0.1 * number, "top5": 0.0},
            torch_measures={} if number == 2 else {"top1": 0.75, "top5": 0.9},
            milliseconds=None if number == 2 else 1.5 + number,
            torch_milliseconds=4.5,
        )
        for number, name in enumerate(("model.onnx", "model-int8.onnx", "model.safetensors"))
    ]
    compared.append(ComparedFile(name="detector.safetensors", runtime="", compared_on="validation", differences=()))
    names = ("model.onnx", "model.safetensors", "curves.png", "predict.py", "example.png")
    files = [file(name, size_bytes) for name, size_bytes in zip(names, (5_000_000, 80, 20_000, 900, 7), strict=True)]
    library = Library("segmentation_models_pytorch", "load()", lambda folder: nn.Identity())
    export = prepare_for_export(model, OnnxOptions())
    commands = suggest_onnx_commands(model, export, ["model.onnx", "model-int8.onnx"])
    return compose_model_card(model, files, compared, library, commands)


def compose_short_card(folder: Path) -> str:
    """Return the card of a pretrained model whose run has no events. No converted file was compared with the model."""
    fields = {"pretrained": True, "weights_file": "/home/somebody/weights.pt"}
    model = make_model_of_run(folder, "instance_segmentation", model="maskrcnn", **fields)
    model.preprocessing = msgspec.structs.replace(model.preprocessing, framing="")
    files = [file("model.safetensors", 3), file("model.onnx", 4), file("predict.py", 5)]
    return compose_model_card(model, files, [], None, [upload_command()])


def compose_card_without_onnx(folder: Path) -> str:
    """Return the card of a model with one channel, a task that the Hub does not know, and no suggested commands."""
    model = make_model_of_run(folder, "point_segmentation", PLANNED, model="pointcnn_x1", size=0, channels=1)
    differences = (Difference(batch_size=1, difference=3e-6, largest_output=1.0),)
    compared = ComparedFile(name="model.safetensors", runtime="torch", compared_on="random", differences=differences)
    return compose_model_card(model, [file("model.safetensors", 3)], [compared], None, [])


def test_cards_match_the_golden_file(tmp_path: Path) -> None:
    cards = []
    for make in (compose_full_card, compose_short_card, compose_card_without_onnx):
        (tmp_path / make.__name__).mkdir()
        cards.append(make(tmp_path / make.__name__).replace(footplate_version(), "VERSION"))
    check_file(GOLDEN, "\n=====\n\n".join(cards))


@pytest.mark.parametrize(
    ("task", "name", "shapes"),
    [
        ("classification", "images", "images:1x16x16x3"),
        ("point_segmentation", "points", "points:1x512x3"),
        ("classification", "inputs", "inputs:1x3x16x16"),
    ],
)
def test_commands_state_the_shape_of_the_input(tmp_path: Path, task: str, name: str, shapes: str) -> None:
    fields = {"points": 512, "model": "pointcnn_x1"} if task == "point_segmentation" else {"image_size": 16}
    model = make_model_of_run(tmp_path, task, **fields)
    export = Exportable(model.module, name, "outputs", {}, torch.clone)
    assert f"--minShapes={shapes} " in suggest_onnx_commands(model, export, ["model.onnx"])[0].command


@pytest.mark.parametrize(("task", "ids"), [("classification", ("top1", "loss")), ("detection", ("map",))])
def test_curves_show_the_first_metric_and_the_loss(tmp_path: Path, task: str, ids: tuple[str, ...]) -> None:
    events = [
        validation(epoch, **dict.fromkeys((ids[0], "top5", "ap50"), 0.1 * epoch), loss=3.0 - 0.2 * epoch)
        for epoch in (5, 6, 8)
    ]
    model = make_model_of_run(tmp_path, task, *events[:2])
    assert not write_curves(tmp_path / "curves.png", model)
    model = make_model_of_run(tmp_path, task, *events)
    assert write_curves(tmp_path / "curves.png", model)
    with Image.open(tmp_path / "curves.png") as image:
        pixels = np.asarray(image)[40:276]  # without the titles
    for number, color in enumerate(((31, 119, 180), (214, 39, 40))):
        rows, columns = np.nonzero((pixels == color).all(2))
        if number >= len(ids):
            assert not len(rows)
            continue
        assert (columns.min(), columns.max()) == pytest.approx((48, 592), abs=2)
        heights = [(232 - rows[np.abs(columns - x) <= 1].mean()) / 224 for x in (49, 48 + 544 / 3, 591)]
        # The metric rises and the loss falls, each over the full height.
        assert heights == pytest.approx([1, 2 / 3, 0] if number else [0, 1 / 3, 1], abs=0.02)
