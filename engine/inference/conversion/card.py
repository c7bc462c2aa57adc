"""Model card: a Markdown file with metadata for the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from engine.contract.catalogue import Measure, load_catalogue, weights_of
from engine.contract.events import Planned, Validation
from engine.contract.inference.conversion import ComparedFile, NextCommand, WrittenFile
from engine.contract.job import FIELDS, TIMM
from engine.inference.conversion.exportable import Exportable
from engine.inference.conversion.weights_file import Library
from engine.inference.trained_model import TrainedModel
from engine.runs.evaluations import read_evaluations
from engine.system.format import counted, metric_value, size
from engine.system.plain_text import escape
from engine.system.plugins import footplate_version

CARD = "README.md"
_HUB_METRICS = {"top1": "accuracy", "miou": "mean_iou", "map": "map"}
"""Names on the Hugging Face Hub for metrics that also exist there, keyed by metric id."""
_ALWAYS_LISTED = ("epochs", "batch_size", "optimizer", "learning_rate", "schedule")
"""Training settings that the model card lists even if they have their default values."""
_PLACEHOLDER = "*To be written by whoever publishes this model.*"


def compose_model_card(
    model: TrainedModel,
    files: Sequence[WrittenFile],
    compared: Sequence[ComparedFile],
    library: Library | None,
    commands: Sequence[NextCommand],
) -> str:
    """Return the text of the model card for a folder with `files`. Those in `compared` were compared with the model.

    `library` can load the weights. It is None if there is none or no weights were written. `commands` are suggested to
    the reader as next steps.
    """
    planned = model.run.read_plan()
    sections = [
        f"---\n{_compose_metadata(model, files, library)}\n---\n\n# {_get_title(model)}\n\n{_compose_summary(model)}",
        *(f"![Training curves]({each.name})" for each in files if each.name == CURVES),
        f"## Intended use\n\n{_PLACEHOLDER}",
        f"## Data\n\n{_compose_data_section(model, planned)}",
        f"## Measures\n\n{_compose_metric_table(model, compared)}",
        f"## How to use it\n\n{_compose_usage_section(files, library)}",
        f"## Files\n\n{_compose_file_table(files)}"
        + (f"\n\n{_compose_comparison_section(compared)}" if compared else ""),
        f"## Training\n\n{_compose_settings_table(model)}",
        f"## License\n\n{_compose_license_section(model)}",
    ]
    if commands:
        text = "\n".join(f"# {each.purpose}\n{each.command}" for each in commands)
        sections.append(f"## Next\n\n```sh\n{text}\n```")
    return "\n\n".join(sections) + "\n"


def _compose_metadata(model: TrainedModel, files: Sequence[WrittenFile], library: Library | None) -> str:
    """Return the YAML header of the model card. `library` is the library that can load the model, if any."""
    from huggingface_hub import ModelCardData

    task = model.task.entry
    metrics = [_HUB_METRICS[each.id] for each in task.metrics if each.id in _HUB_METRICS]
    has_onnx = any(each.name.endswith(".onnx") for each in files)
    library_name = "onnx" if has_onnx else None
    if library is not None:
        library_name = library.name.replace("_", "-")  # as on the Hub
    dataset = get_dataset_name(model)
    metadata: dict[str, Any] = {
        "library_name": library_name,
        "pipeline_tag": task.hub_task or None,
        "tags": [task.id.replace("_", "-"), *(["onnx"] if has_onnx else []), "footplate"],
        "metrics": metrics or None,
        "datasets": [dataset] if dataset else None,
    }
    return ModelCardData(**{name: value for name, value in metadata.items() if value is not None}).to_yaml()


def get_dataset_name(model: TrainedModel) -> str:
    """Return the name of the dataset's folder. Its parent folders are omitted, since they may reveal the owner."""
    return escape(PurePath(model.job.data.dataset).name)


def _get_title(model: TrainedModel) -> str:
    return f"{_get_model_title(model)}: {model.task.entry.title.lower()}"


def _get_model_title(model: TrainedModel) -> str:
    """Return the catalogue's title of the model, or its name if it is not in the catalogue."""
    entry = load_catalogue().model(model.job.model.name)
    return entry.title if entry is not None else PurePath(model.job.model.name.removeprefix(TIMM)).name


def _compose_summary(model: TrainedModel) -> str:
    """Return the introductory sentence about the model for its model card."""
    parameters = sum(each.numel() for each in model.module.parameters())
    shape = f" for images of {model.size} x {model.size} px" if model.size and model.preprocessing.framing else ""
    return (
        f"{_get_model_title(model)} with {parameters:,} parameters{shape}, trained with Footplate {footplate_version()} on "
        f"{get_dataset_name(model) or 'custom data'}."
    )


def _compose_data_section(model: TrainedModel, planned: Planned | None) -> str:
    """Return the model card's section about the training data: numbers of samples and channels, and class names.

    `planned` is None if the plan of the run can't be read.
    """
    lines = []
    if planned is not None:
        lines.append(
            f"{counted(planned.train_images, 'sample')} for training and {planned.val_images:,} for validation, with "
            f"{counted(model.channels, 'channel')}."
        )
    if model.classes:
        lines.append(f"Classes: {escape(', '.join(model.classes))}.")
    return "\n\n".join(lines) or _PLACEHOLDER


def _compose_metric_table(model: TrainedModel, compared: Sequence[ComparedFile]) -> str:
    """Return a Markdown table of the metrics from the last validation, the compared files and saved evaluations."""
    last_validation = None
    for event in model.run.events():
        last_validation = event if isinstance(event, Validation) else last_validation
    columns: list[tuple[str, dict[str, float]]] = []
    if last_validation is not None:
        columns.append((f"last validation, epoch {last_validation.epoch}", last_validation.measures))
    measured = [each for each in compared if each.measures]
    if measured:
        columns.append((f"this checkpoint, {counted(measured[0].samples, 'sample')}", measured[0].torch_measures))
    columns += [(f"{each.name}, {counted(each.samples, 'sample')}", each.measures) for each in measured]
    columns += _read_evaluation_metrics(model).items()
    if not columns:
        return "*None were saved.*"
    rows = [
        f"| {measure.title} | " + " | ".join(_format_value(measure, values) for _, values in columns) + " |"
        for measure in model.objective.entry.metrics
    ]
    header = "| measure | " + " | ".join(name for name, _ in columns) + " |"
    return "\n".join([header, "|---|" + "---|" * len(columns), *rows])


def _read_evaluation_metrics(model: TrainedModel) -> dict[str, dict[str, float]]:
    """Return the metrics of this checkpoint from the latest saved evaluation on each dataset and split."""
    evaluations: dict[str, dict[str, float]] = {}
    for saved in read_evaluations(model.run.path):  # the latest first
        evaluation = saved.evaluation
        if evaluation.sha256 == model.sha256:
            dataset = escape(PurePath(evaluation.dataset).name)
            name = f"{dataset} ({evaluation.split}), {counted(evaluation.samples, 'sample')}"
            evaluations.setdefault(name, {id: interval.value for id, interval in evaluation.measures.items()})
    return evaluations


def _format_value(measure: Measure, values: dict[str, float]) -> str:
    """Format the value of a metric for a table, with a dash if it was not computed. `values` are keyed by metric id."""
    value = values.get(measure.id)
    if value is None:
        return "–"
    return metric_value(value, percent=measure.percent, decimals=2)


def _compose_usage_section(files: Sequence[WrittenFile], library: Library | None) -> str:
    """Return the model card's instructions for using the files and the library that can load the weights, if any."""
    names = {each.name: each for each in files}
    paragraphs = []
    if "predict.py" in names:
        example = next((name for name in names if name.startswith("example.")), "FILE")
        paragraphs.append(f"```sh\npip install onnxruntime numpy pillow\npython predict.py {example}\n```")
    if library is not None:
        paragraphs.append(f"The weights, with {library.name.replace('_', '-')}:\n\n```python\n{library.code}\n```")
    elif "model.safetensors" in names:
        paragraphs.append("The weights in model.safetensors load only with the code that builds the model.")
    return "\n\n".join(paragraphs)


def _compose_file_table(files: Sequence[WrittenFile]) -> str:
    rows = [f"| {each.name} | {each.what} | {size(each.size_bytes)} |" for each in files]
    return "\n".join(["| file | contents | size |", "|---|---|---|", *rows])


def _compose_comparison_section(compared: Sequence[ComparedFile]) -> str:
    """Return a paragraph for each file that was compared with the model: the difference and the speed."""
    paragraphs = []
    for each in compared:
        largest = max((difference.difference for difference in each.differences), default=None)
        if largest is None:
            continue
        batches = " and ".join(str(difference.batch_size) for difference in each.differences)
        inputs = "validation samples" if each.compared_on == "validation" else "random inputs"
        text = f"{each.name} was opened in {each.runtime} and differs from the model by at most {largest:.1e} "
        text += f"on {inputs} (batches of {batches})."
        if each.milliseconds is not None and each.torch_milliseconds is not None:
            text += f" One sample takes {each.milliseconds:.1f} ms on a CPU; PyTorch takes {each.torch_milliseconds:.1f} ms."
        paragraphs.append(text)
    return "\n\n".join(paragraphs)


def _compose_settings_table(model: TrainedModel) -> str:
    """Return a Markdown table of the most important training settings, and of those that differ from the defaults."""
    rows = []
    for name, field in FIELDS.items():
        value = model.job.value(name)
        if "recipe" in field.traits and (name in _ALWAYS_LISTED or value != field.default):
            text = ", ".join(map(str, value)) if isinstance(value, tuple) else value
            rows.append(f"| {field.label} | {text} |")
    return "\n".join(["| setting | value |", "|---|---|", *rows])


def _compose_license_section(model: TrainedModel) -> str:
    """Return the model card's section with the license of the pretrained weights, and a placeholder for the model's."""
    is_pretrained = model.job.model.pretrained and not model.job.model.weights_file
    weights = weights_of(model.job, load_catalogue()) if is_pretrained else None
    if weights is None:
        return _PLACEHOLDER
    license = weights.license_title or "of unknown license"
    return f"The training started from the weights {weights.title} ({license}).\n\n{_PLACEHOLDER}"


CURVES = "curves.png"
MIN_POINTS = 3
"""Minimum number of validations for which training curves are plotted."""
_WIDTH, _HEIGHT, _MARGIN = 640, 320, 48
_COLORS = ("#1f77b4", "#d62728")


def write_curves(path: Path, model: TrainedModel) -> bool:
    """Plot the first metric and, if the task reports it, the validation loss over the epochs, each with its own scale.

    Returns False, without a plot, if the run has too few validations. Raises OSError.
    """
    validations = [event for event in model.run.events() if isinstance(event, Validation)]
    measures = model.objective.entry.metrics
    plotted = [measures[0], *(measure for measure in measures[1:] if measure.id == "loss")]
    if len(validations) < MIN_POINTS:
        return False
    image = Image.new("RGB", (_WIDTH, _HEIGHT), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(13)
    right, bottom = _WIDTH - _MARGIN, _HEIGHT - _MARGIN
    draw.rectangle((_MARGIN, _MARGIN, right, bottom), outline="#999999")
    first, last = validations[0].epoch, validations[-1].epoch
    draw.text((_MARGIN, bottom + 8), f"epoch {first}", "black", font)
    draw.text((right, bottom + 8), f"{last}", "black", font, anchor="ra")
    for column, (measure, color) in enumerate(zip(plotted, _COLORS, strict=False)):
        points = [(each.epoch, each.measures[measure.id]) for each in validations if measure.id in each.measures]
        if not points:
            continue
        lowest, highest = min(value for _, value in points), max(value for _, value in points)
        scale = (highest - lowest) or 1.0
        line = [
            (
                _MARGIN + (right - _MARGIN) * (epoch - first) / max(1, last - first),
                bottom - (bottom - _MARGIN) * (value - lowest) / scale,
            )
            for epoch, value in points
        ]
        draw.line(line, color, 2)
        text_x, anchor = (_MARGIN, "ls") if column == 0 else (right, "rs")
        draw.text((text_x, _MARGIN - 8), f"{measure.title}: {lowest:.4g} to {highest:.4g}", color, font, anchor=anchor)
    image.save(path)
    return True


ENGINE_BATCH_SIZES = (1, 8, 32)
"""Minimum, optimal and maximum batch size of a TensorRT engine."""


def suggest_onnx_commands(model: TrainedModel, export: Exportable, names: list[str]) -> list[NextCommand]:
    """Return commands that use the ONNX files `names`. The first file must be in fp32.

    trtexec in TensorRT 11 has neither --fp16 nor --int8. It uses the number types in the file, so nvidia-modelopt first
    converts the file to fp16.
    """
    shapes = _format_shape_flags(model, export)
    commands = [
        NextCommand(purpose="TensorRT engine, fp32", command=_format_trtexec_command(names[0], "model.plan", shapes)),
        NextCommand(
            purpose="TensorRT engine, fp16: convert the file",
            command='pip install "nvidia-modelopt[onnx]" && python -m modelopt.onnx.autocast '
            f"--onnx_path {names[0]} --output_path model-fp16.onnx",
        ),
        NextCommand(
            purpose="TensorRT engine, fp16: build the engine",
            command=_format_trtexec_command("model-fp16.onnx", "model-fp16.plan", shapes),
        ),
    ]
    commands += [
        NextCommand(purpose="TensorRT engine, int8", command=_format_trtexec_command(name, "model-int8.plan", shapes))
        for name in names[1:]
    ]
    openvino = f"import openvino; openvino.save_model(openvino.convert_model('{names[0]}'), 'model.xml')"
    commands.append(NextCommand(purpose="OpenVINO model", command=f'pip install openvino && python -c "{openvino}"'))
    return commands


def upload_command() -> NextCommand:
    return NextCommand(
        purpose="Upload to the Hugging Face Hub, once README.md names a license",
        command="hf upload USER/NAME . .",
    )


def _format_trtexec_command(source: str, engine: str, shapes: str) -> str:
    """Return the trtexec command that builds the TensorRT engine `engine` from the ONNX file `source`.

    `shapes` are the flags for the shapes of the input.
    """
    return f"trtexec --onnx={source} --saveEngine={engine} {shapes}"


def _format_shape_flags(model: TrainedModel, export: Exportable) -> str:
    """Return trtexec's flags for the smallest, usual and largest shape of the input."""
    sample = _get_sample_shape(model, export)
    flags = []
    for flag, batch_size in zip(("--minShapes", "--optShapes", "--maxShapes"), ENGINE_BATCH_SIZES, strict=True):
        flags.append(f"{flag}={export.input_name}:{'x'.join(map(str, (batch_size, *sample)))}")
    return " ".join(flags)


def _get_sample_shape(model: TrainedModel, export: Exportable) -> tuple[int, ...]:
    """Return the shape of one sample of the exported model's input."""
    if export.input_name == "images":
        return model.size, model.size, model.channels
    if export.input_name == "points":
        return model.job.data.points, model.channels
    return model.task.get_example_shape(model.job, model.channels)
