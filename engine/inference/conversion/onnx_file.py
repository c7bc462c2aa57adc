"""A model as an ONNX file, written by torch's exporter."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from torch import Tensor

from engine.contract.inference.conversion import OnnxOptions
from engine.inference.conversion.exportable import WIDTH, Exportable, widened
from engine.inference.conversion.failure import CannotConvert, not_exported
from engine.inference.conversion.quiet import quietly
from engine.inference.trained_model import TrainedModel
from engine.tasks.detection.task import SHOWN
from engine.tasks.multilabel.task import THRESHOLD

ONE_FILE_BYTES = 1_900_000_000
"""Weights of more than this lie in a file beside the graph: protobuf's messages end at 2 GiB."""
EXAMPLES = 2
"""The exporter takes what it sees of one sample for what holds of any one alone."""


def write_onnx(
    path: Path, export: Exportable, inputs: Tensor, metadata: dict[str, str], options: OnnxOptions
) -> list[Path]:
    """Writes `export`, as tried with model inputs [n, ...]; the files that were made. Raises CannotConvert, OSError."""
    from engine.inference.conversion.static_detectors import TRANSLATIONS

    seen = inputs[torch.arange(EXAMPLES) % len(inputs)]
    # Height and width that are alike would be taken for one.
    example = export.given(widened(seen) if WIDTH in export.axes.values() else seen)
    with quietly():
        try:
            program = torch.onnx.export(
                export.module,
                (example,),
                dynamo=True,
                verbose=False,
                input_names=[export.input_name],
                output_names=[export.output_name],
                dynamic_shapes=(export.axes,),
                opset_version=options.opset,
                custom_translation_table=TRANSLATIONS,
            )
        except Exception as error:  # it fails in as many ways as there are models
            raise CannotConvert(not_exported(error)) from error
        assert program is not None
        program.model.metadata_props.update(metadata)
        apart = sum(each.numel() * each.element_size() for each in export.module.state_dict().values())
        program.save(str(path), external_data=apart > ONE_FILE_BYTES)
    return sorted(path.parent.glob(f"{path.name}*"))


def metadata_of(model: TrainedModel, export: Exportable) -> dict[str, str]:
    """What a program needs to know to use the file: kept in it under these names; lists are JSON."""
    made_by, entry = model.preprocessing, model.task.entry
    told: dict[str, object] = {
        "task": entry.id,
        "classes": model.classes,
        "colours": [entry.colour for entry in model.objective.legend],
        "size": model.size,
        "resized": model.resized,
        "channels": model.channels,
        "framing": made_by.framing,
        "mean": made_by.mean,
        "std": made_by.std,
        "normalised_in_file": export.input_name != "inputs",
        "run": model.run.run_id,
        "model": model.job.model.name,
        "checkpoint": model.checkpoint,
        "checkpoint_sha256": model.sha256,
        "made_by": f"Footplate {footplate_version()}",
    }
    if made_by.low:
        told |= {"low": made_by.low, "high": made_by.high}
    if entry.predicts == "points":
        told["points"] = model.job.data.points
    if made_by.features:
        told["features"] = made_by.features
    if entry.predicts in ("objects", "labels"):
        told["score_threshold"] = SHOWN if entry.predicts == "objects" else THRESHOLD
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in told.items()}


def footplate_version() -> str:
    try:
        return version("footplate")
    except PackageNotFoundError:
        return "(not installed)"
