"""Model card: Markdown with the metadata that the Hugging Face Hub reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from engine.contract.catalogue import Measure, load_catalogue, weights_of
from engine.contract.events import Planned, Validation
from engine.contract.inference.conversion import ComparedFile, NextCommand, WrittenFile
from engine.contract.job import FIELDS, TIMM
from engine.inference.conversion.curves import CURVES
from engine.inference.conversion.onnx_file import footplate_version
from engine.inference.conversion.weights_file import Library
from engine.inference.trained_model import TrainedModel
from engine.runs.evaluations import evaluations_of
from engine.system.format import size
from engine.system.plain_text import escaped

CARD = "README.md"
_METRICS = {"top1": "accuracy", "miou": "mean_iou", "map": "map"}
"""Names of metrics on the Hub, if it has one."""
_ALWAYS = ("epochs", "batch_size", "optimizer", "learning_rate", "schedule")
"""Training settings that are listed even with default values."""
_PLACEHOLDER = "*To be written by whoever publishes this model.*"


def card(
    model: TrainedModel,
    files: Sequence[WrittenFile],
    compared: Sequence[ComparedFile],
    library: Library | None,
    commands: Sequence[NextCommand],
) -> str:
    """Return the card of a model in a folder with `files`, whose weights `library` loads."""
    planned = model.run.planned()
    parts = [
        f"---\n{_metadata(model, files, library)}\n---\n\n# {_title(model)}\n\n{_summary(model)}",
        *(f"![Training curves]({each.name})" for each in files if each.name == CURVES),
        f"## Intended use\n\n{_PLACEHOLDER}",
        f"## Data\n\n{_data(model, planned)}",
        f"## Measures\n\n{_measures(model, compared)}",
        f"## How to use it\n\n{_usage(files, library)}",
        f"## Files\n\n{_files(files)}" + (f"\n\n{_comparison(compared)}" if compared else ""),
        f"## Training\n\n{_recipe(model)}",
        f"## License\n\n{_license(model)}",
    ]
    if commands:
        text = "\n".join(f"# {each.purpose}\n{each.command}" for each in commands)
        parts.append(f"## Next\n\n```sh\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def _metadata(model: TrainedModel, files: Sequence[WrittenFile], library: Library | None) -> str:
    from huggingface_hub import ModelCardData

    task = model.task.entry
    metrics = [_METRICS[each.id] for each in task.metrics if each.id in _METRICS]
    onnx = any(each.name.endswith(".onnx") for each in files)
    names = {"segmentation_models_pytorch": "segmentation-models-pytorch"}
    metadata: dict[str, Any] = {
        "library_name": names.get(library.name, library.name) if library else "onnx" if onnx else None,
        "pipeline_tag": task.hub_task or None,
        "tags": [task.id.replace("_", "-"), *(["onnx"] if onnx else []), "footplate"],
        "metrics": metrics or None,
        "datasets": [dataset_name(model)] if dataset_name(model) else None,
    }
    return ModelCardData(**{name: value for name, value in metadata.items() if value is not None}).to_yaml()


def dataset_name(model: TrainedModel) -> str:
    """Return the last part of the dataset's path; the others may reveal its owner."""
    return escaped(PurePath(model.job.data.dataset).name)


def _title(model: TrainedModel) -> str:
    return f"{_model_title(model)}: {model.task.entry.title.lower()}"


def _model_title(model: TrainedModel) -> str:
    known = load_catalogue().model(model.job.model.name)
    return known.title if known is not None else PurePath(model.job.model.name.removeprefix(TIMM)).name


def _summary(model: TrainedModel) -> str:
    parameters = sum(each.numel() for each in model.module.parameters())
    shape = f" for images of {model.size} x {model.size} px" if model.size and model.preprocessing.framing else ""
    return (
        f"{_model_title(model)} with {parameters:,} parameters{shape}, trained with Footplate {footplate_version()} on "
        f"{dataset_name(model) or 'custom data'}."
    )


def _data(model: TrainedModel, planned: Planned | None) -> str:
    lines = []
    if planned is not None:
        lines.append(
            f"{planned.train_images:,} samples for training and {planned.val_images:,} for validation, with "
            f"{model.channels} channel{'s' if model.channels > 1 else ''}."
        )
    if model.classes:
        lines.append(f"Classes: {escaped(', '.join(model.classes))}.")
    return "\n\n".join(lines) or _PLACEHOLDER


def _measures(model: TrainedModel, compared: Sequence[ComparedFile]) -> str:
    """Return a table with metrics of the run's last validation, of the compared files and of evaluations."""
    last = None
    for event in model.run.events():
        last = event if isinstance(event, Validation) else last
    columns: list[tuple[str, dict[str, float]]] = []
    if last is not None:
        columns.append((f"last validation, epoch {last.epoch}", last.measures))
    measured = [each for each in compared if each.measures]
    if measured:
        columns.append((f"this checkpoint, {measured[0].samples} samples", measured[0].torch_measures))
    columns += [(f"{each.name}, {each.samples} samples", each.measures) for each in measured]
    columns += _evaluations(model).items()
    if not columns:
        return "*None were saved.*"
    rows = [
        f"| {measure.title} | " + " | ".join(_value(measure, values) for _, values in columns) + " |"
        for measure in model.objective.entry.metrics
    ]
    head = "| measure | " + " | ".join(name for name, _ in columns) + " |"
    return "\n".join([head, "|---|" + "---|" * len(columns), *rows])


def _evaluations(model: TrainedModel) -> dict[str, dict[str, float]]:
    """Return the metrics of the latest saved evaluation of this checkpoint on each dataset and split."""
    evaluations: dict[str, dict[str, float]] = {}
    for saved in evaluations_of(model.run.path):
        each = saved.evaluation
        if each.sha256 == model.sha256:
            name = f"{escaped(PurePath(each.dataset).name)} ({each.split}), {each.samples} samples"
            evaluations.setdefault(name, {measure: interval.value for measure, interval in each.measures.items()})
    return evaluations


def _value(measure: Measure, values: dict[str, float]) -> str:
    value = values.get(measure.id)
    if value is None:
        return "–"
    return f"{100 * value:.2f} %" if measure.percent else f"{value:.4f}"


def _usage(files: Sequence[WrittenFile], library: Library | None) -> str:
    names = {each.name: each for each in files}
    parts = []
    if "predict.py" in names:
        example = next((name for name in names if name.startswith("example.")), "FILE")
        parts.append(f"```sh\npip install onnxruntime numpy pillow\npython predict.py {example}\n```")
    if library is not None:
        parts.append(f"The weights, with {library.name.replace('_', '-')}:\n\n```python\n{library.code}\n```")
    elif "model.safetensors" in names:
        parts.append("The weights in model.safetensors load only with the code that builds the model.")
    return "\n\n".join(parts)


def _files(files: Sequence[WrittenFile]) -> str:
    rows = [f"| {each.name} | {each.what} | {size(each.size_bytes)} |" for each in files]
    return "\n".join(["| file | contents | size |", "|---|---|---|", *rows])


def _comparison(compared: Sequence[ComparedFile]) -> str:
    lines = []
    for each in compared:
        largest = max((one.difference for one in each.differences), default=None)
        if largest is None:
            continue
        batches = " and ".join(str(one.batch_size) for one in each.differences)
        on = "validation samples" if each.compared_on == "validation" else "random inputs"
        line = f"{each.name} was opened in {each.runtime} and differs from the model by at most {largest:.1e} on {on} "
        line += f"(batches of {batches})."
        if each.milliseconds is not None and each.torch_milliseconds is not None:
            line += f" One sample takes {each.milliseconds:.1f} ms on a CPU; PyTorch takes {each.torch_milliseconds:.1f} ms."
        lines.append(line)
    return "\n\n".join(lines)


def _recipe(model: TrainedModel) -> str:
    rows = []
    for name, field in FIELDS.items():
        value = model.job.value(name)
        if "recipe" in field.traits and (name in _ALWAYS or value != field.default):
            text = ", ".join(map(str, value)) if isinstance(value, tuple) else value
            rows.append(f"| {field.label} | {text} |")
    return "\n".join(["| setting | value |", "|---|---|", *rows])


def _license(model: TrainedModel) -> str:
    weights = (
        weights_of(model.job, load_catalogue())
        if model.job.model.pretrained and not model.job.model.weights_file
        else None
    )
    if weights is None:
        return _PLACEHOLDER
    licence = weights.licence_title or "of unknown license"
    return f"The training started from the weights {weights.title} ({licence}).\n\n{_PLACEHOLDER}"
