"""Convert the model of a run: write files, open them again, compare them with the model, and describe them."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import torch

from engine.checks.conversion_checks import conversion_problems, out_problems
from engine.contract.catalogue import load_catalogue
from engine.contract.inference.conversion import (
    CONVERTED_FILE,
    ComparedFile,
    ConversionResult,
    ConvertRequest,
    Difference,
    NextCommand,
    OnnxOptions,
    WrittenFile,
)
from engine.contract.messages import Progress
from engine.contract.problems import Problem, errors
from engine.inference.conversion import comparison
from engine.inference.conversion.card import (
    CARD,
    CURVES,
    compose_model_card,
    suggest_onnx_commands,
    upload_command,
    write_curves,
)
from engine.inference.conversion.comparison import ComparisonSamples, load_samples
from engine.inference.conversion.exportable import Exportable, prepare_for_export
from engine.inference.conversion.failure import CannotConvert
from engine.inference.conversion.weights_file import CONFIG, WEIGHTS, Library, make_library_runner, write_weights
from engine.inference.devices import OnProgress
from engine.inference.trained_model import CannotLoad, TrainedModel, load
from engine.runs.folder import RunFolder
from engine.supervisor.environment import usable_cores
from engine.system import paths
from engine.system.files import open_file
from engine.system.format import counted
from engine.system.plugins import installed_versions

ONNX, INT8 = "model.onnx", "model-int8.onnx"
REPORTED_LOSS = 0.01
"""Minimum decrease of a metric by int8 quantization that is reported as a problem."""


def convert(request: ConvertRequest, on_progress: OnProgress) -> Path:
    """Convert a model as `request` describes, and return the path of the file with the `ConversionResult`.

    If CannotLoad is raised, no files are left behind.
    """
    started = time.monotonic()
    run = RunFolder(request.run)
    target = Path(request.out).expanduser().absolute()
    problems = _find_problems(request, run)
    if errors(problems):
        raise CannotLoad(*errors(problems))
    torch.set_num_threads(usable_cores())
    stages = _StageProgress(request, on_progress)
    stages.start("Loading the model")
    model = load(run, request.checkpoint)
    model.module.to(memory_format=torch.contiguous_format)
    samples = load_samples(model)
    try:
        with create_temporary_folder(target) as folder:
            conversion = _Conversion(model, samples, request, folder, stages, list(problems))
            return _store(conversion.run(target, started), folder, target, request, run)
    except OSError as error:
        location = f" ({error.filename})" if error.filename else ""
        message = f"{target} was not written: {error.strerror or error}{location}."
        raise CannotLoad(Problem("out", message, "Choose another folder, or free some space there.")) from error


def _find_problems(request: ConvertRequest, run: RunFolder) -> list[Problem]:
    """Return errors and warnings about a requested conversion, found without loading the model."""
    job = run.job()
    if job is None:
        return [Problem("run", f"The job of {run.run_id} can't be read.", "Choose another run.")]
    catalogue = load_catalogue()
    problems = [each for format_ in request.to for each in conversion_problems(job, format_, request.onnx, catalogue)]
    return [*problems, *out_problems(request.out, packed=request.packed)]


def _store(converted: ConversionResult, folder: Path, target: Path, request: ConvertRequest, run: RunFolder) -> Path:
    """Write the description `converted` to `folder`, move the folder to `target`, and return the description's path.

    If the request is for a zip file, the files are packed into `target` instead, and the description is also saved in
    the run folder. The path is then that of this copy.
    """
    paths.write_atomically(folder / CONVERTED_FILE, msgspec.json.format(msgspec.json.encode(converted)))
    if not request.packed:
        move_folder(folder, target)
        return target / CONVERTED_FILE
    saved = paths.make_private_folder(run.path / "exports" / f"{time.strftime('%Y%m%d-%H%M%S')}-{target.stem}")
    write_zip(folder, target)
    shutil.copyfile(folder / CONVERTED_FILE, saved / CONVERTED_FILE)
    (saved / CONVERTED_FILE).chmod(0o600)
    return saved / CONVERTED_FILE


class _StageProgress:
    """Progress of a conversion over its stages, each weighted by its usual duration."""

    def __init__(self, request: ConvertRequest, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        weights = {"Loading the model": 2.0}
        if "onnx" in request.to:
            weights |= {"Exporting to ONNX": 8.0, f"Comparing {ONNX} with the model": 6.0}
            if request.onnx.int8:
                weights |= {"Converting to int8": 5.0, f"Comparing {INT8} with the model": 6.0}
        if "safetensors" in request.to:
            weights |= {"Writing the weights": 1.0}
        self._weights = weights | {"Writing the card": 1.0}
        self._current = ""  # stage that runs

    def start(self, name: str) -> None:
        """Begin the stage `name` of the conversion, and report the progress."""
        self._current = name
        self.report(0.0)

    def report(self, fraction: float) -> None:
        """Report the completed fraction of the current stage."""
        names = list(self._weights)
        completed = sum(self._weights[name] for name in names[: names.index(self._current)])
        total = completed + fraction * self._weights[self._current]
        self._on_progress(Progress(fraction=total / sum(self._weights.values()), what=self._current))


@dataclass
class _Conversion:
    """Conversion of one model to the requested files in `folder`."""

    model: TrainedModel
    samples: ComparisonSamples
    request: ConvertRequest
    folder: Path
    stages: _StageProgress
    problems: list[Problem]
    files: list[WrittenFile] = field(default_factory=list)
    compared: list[ComparedFile] = field(default_factory=list)
    commands: list[NextCommand] = field(default_factory=list)

    def run(self, target: Path, started: float) -> ConversionResult:
        """Convert the model to all requested formats, and write the model card. A failed conversion becomes a warning.

        `target` is the final path of the output, and `started` the time from `time.monotonic` at the start. Raises
        OSError, or CannotLoad if all conversions fail.
        """
        if self.samples.kind == "random":
            message = "The run's dataset can't be read: the files were compared on random inputs, and no metrics were computed."
            self.problems.append(Problem("dataset", message, "", "warning"))
        library = None
        failed: list[Problem] = []
        for format_ in self.request.to:
            try:
                if format_ == "onnx":
                    self._convert_to_onnx(self.request.onnx)
                else:
                    library = self._convert_to_safetensors()
            except CannotConvert as error:
                failed.append(error.problem)
        if len(failed) == len(self.request.to):
            raise CannotLoad(*failed)
        self.problems += [msgspec.structs.replace(each, severity="warning") for each in failed]
        self._write_card(library)
        return self._describe(target, started)

    def _write_card(self, library: Library | None) -> None:
        """Write the training curves and the model card. `library` is the library that can load the weights, if any."""
        self.stages.start("Writing the card")
        if write_curves(self.folder / CURVES, self.model):
            self._add_file(CURVES, "the training's curves")
        if self.request.packed:
            self.commands.append(upload_command())
        text = compose_model_card(self.model, self.files, self.compared, library, self.commands)
        paths.write_atomically(self.folder / CARD, text.encode())
        self._add_file(CARD, "the model's card")

    def _describe(self, target: Path, started: float) -> ConversionResult:
        """Return the description of the finished conversion, to be saved next to the files.

        `target` is the final path of the output, and `started` the time from `time.monotonic` at the start.
        """
        model = self.model
        return ConversionResult(
            run_id=model.run.run_id,
            task=model.task.entry.id,
            model=model.job.model.name,
            checkpoint=model.checkpoint,
            checkpoint_sha256=model.sha256,
            classes=model.classes,
            out=str(target),
            created_at=time.time(),
            seconds=time.monotonic() - started,
            files=tuple(self.files),
            compared=tuple(self.compared),
            problems=tuple(self.problems),
            next_commands=tuple(self.commands),
            environment=_describe_environment(),
        )

    def _convert_to_onnx(self, options: OnnxOptions) -> None:
        """Write the ONNX file, the int8 file if requested, and a script, and compare the files with the model.

        For a packed folder, an example is written, too. Also adds commands that use the files. Raises CannotConvert,
        and removes the ONNX file, if its outputs differ from those of the model. A failed int8 file is only a problem.
        """
        from engine.inference.conversion.onnx_file import collect_metadata, write_onnx
        from engine.inference.conversion.script import SCRIPT, create_script_source, write_example

        self.stages.start("Exporting to ONNX")
        export = prepare_for_export(self.model, options)
        path = self.folder / ONNX
        written = write_onnx(path, export, self.samples.inputs, collect_metadata(self.model, export), options)
        self.stages.start(f"Comparing {ONNX} with the model")
        compared = self._compare(path, export)
        if not comparison.is_equivalent(compared.differences, comparison.get_max_detections(self.model)):
            for file in written:
                file.unlink()
            raise CannotConvert(create_difference_problem(compared))
        for file in written:
            self._add_file(file.name, "the model as ONNX" if file == path else "the weights of the ONNX file")
        self.compared.append(compared)
        names = [ONNX]
        has_int8 = options.int8 and self._try_quantizing(path, export)
        if has_int8:
            names.append(INT8)
        paths.write_atomically(self.folder / SCRIPT, create_script_source(self.model).encode())
        self._add_file(SCRIPT, "a script that predicts with it")
        if self.request.packed:
            example = write_example(self.folder, self.model, self.samples, export)
            if example is not None:
                self._add_file(example.name, "a validation sample to try it on")
        self.commands += suggest_onnx_commands(self.model, export, names)

    def _try_quantizing(self, source: Path, export: Exportable) -> bool:
        """Write the int8 file, and compare it with the model. If that fails, add a problem and return False."""
        from engine.inference.conversion.onnx_file import write_int8

        self.stages.start("Converting to int8")
        path = self.folder / INT8
        try:
            write_int8(path, source, self.model, export, self.samples)
            self.stages.start(f"Comparing {INT8} with the model")
            compared = self._compare(path, export)
        except CannotConvert as error:
            path.unlink(missing_ok=True)
            self.problems.append(msgspec.structs.replace(error.problem, severity="warning"))
            return False
        self.compared.append(compared)
        self._add_file(INT8, "the model as ONNX in 8 bits")
        self.problems += report_int8_losses(self.model, compared)
        return True

    def _compare(self, path: Path, export: Exportable) -> ComparedFile:
        """Compare the outputs, metrics and latency of an ONNX file with those of the model."""
        from engine.inference.conversion.onnx_file import OnnxSession

        session = OnnxSession(path)
        model, samples = self.model, self.samples
        differences = comparison.compare_outputs(model, export, session, samples.inputs)
        metrics = comparison.ComparedMetrics({}, {}, 0)
        if samples.val is not None:
            metrics = comparison.compare_metrics(model, export, session, samples.val, self.stages.report)
        file_ms, torch_ms = comparison.measure_latencies(model, export, session, samples.inputs)
        return ComparedFile(
            name=path.name,
            runtime=session.runtime,
            compared_on=samples.kind,
            differences=differences,
            samples=metrics.samples,
            measures=metrics.file,
            torch_measures=metrics.torch,
            milliseconds=file_ms,
            torch_milliseconds=torch_ms,
        )

    def _convert_to_safetensors(self) -> Library | None:
        """Write the weights, and return the library that can load them, or None if no library can.

        The library must also reproduce the outputs of the model.
        """
        self.stages.start("Writing the weights")
        library, problem = write_weights(self.folder, self.model)
        if problem is not None:
            self.problems.append(problem)
        self._add_file(WEIGHTS, "the weights")
        self._add_file(CONFIG, "what builds the model for them")
        if library is None:
            return None
        try:
            self.compared.append(self._compare_library(library))
        except CannotConvert as error:  # the weights are written nevertheless
            self.problems.append(msgspec.structs.replace(error.problem, severity="warning"))
            return None
        return library

    def _compare_library(self, library: Library) -> ComparedFile:
        """Return the differences between the outputs of the model loaded by `library` and those of the run's model.

        Detectors are only loaded, since their inputs and post-processing differ, so the result lists no differences for
        them. Raises CannotConvert if the outputs differ by more than rounding.
        """
        predict = make_library_runner(library, self.folder)
        differences: tuple[Difference, ...] = ()
        if self.model.task.entry.predicts != "objects":
            # The library takes the inputs of the model unchanged.
            export = Exportable(self.model.module, "inputs", "outputs", {}, lambda inputs: inputs)
            differences = comparison.compare_outputs(self.model, export, predict, self.samples.inputs)
        compared = ComparedFile(
            name=WEIGHTS, runtime=library.version, compared_on=self.samples.kind, differences=differences
        )
        if not comparison.is_equivalent(differences, detections=0):
            raise CannotConvert(create_difference_problem(compared))
        return compared

    def _add_file(self, name: str, what: str) -> None:
        """Add the written file `name` to the list of files in the description. `what` describes its content."""
        self.files.append(describe_written_file(self.folder / name, what))


def create_difference_problem(compared: ComparedFile) -> Problem:
    """Return the problem for a file whose outputs differ too much from those of the model."""
    worst = max(compared.differences, key=lambda each: (each.unmatched, each.difference))
    if worst.unmatched:
        details = f"{counted(worst.unmatched, 'detection')} of {counted(worst.batch_size, 'image')} differ."
        remedy = "Train longer: where many boxes have the same score, others are chosen."
    else:
        details = f"outputs differ by up to {worst.difference:.1e}."
        remedy = "Convert into another format."
    message = f"{compared.name} does not give what the model gives, and was not kept: {details}"
    return Problem("model", message, remedy)


def report_int8_losses(model: TrainedModel, compared: ComparedFile) -> list[Problem]:
    """Return a problem for each metric that is noticeably lower with the int8 file."""
    problems = []
    for measure in model.objective.entry.metrics:
        before, after = (values.get(measure.id) for values in (compared.torch_measures, compared.measures))
        if measure.percent and before is not None and after is not None and before - after > REPORTED_LOSS:
            message = f"In int8, {measure.title} falls from {100 * before:.1f}% to {100 * after:.1f}%."
            problems.append(Problem("int8", message, f"Use {ONNX}, or fp16.", "warning"))
    return problems


def _describe_environment() -> dict[str, str]:
    """Return the number of CPU threads, and the versions of Python and of packages that affect the converted files."""
    packages = ("footplate", "torch", "torchvision", "timm", "onnx", "onnxscript", "onnxruntime", "safetensors")
    settings = {"python": platform.python_version(), "cpu_threads": str(torch.get_num_threads())}
    return settings | installed_versions(packages)


_BLOCK_BYTES = 1 << 20
_UNCOMPRESSED_EXTENSIONS = (".onnx", ".data", ".safetensors", ".png", ".npy")
"""Extensions of files that are stored uncompressed in a zip file, since compression does not shrink them."""


@contextmanager
def create_temporary_folder(target: Path) -> Iterator[Path]:
    """Create a folder next to `target`. At the end, delete it unless `move_folder` has moved it. Raises OSError."""
    paths.make_folder(target.parent)
    temporary = _create_temporary_path(target)
    temporary.mkdir(mode=0o700)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def move_folder(written: Path, target: Path) -> None:
    """Move a folder to `target`, which must be empty or not exist. Raises OSError."""
    with suppress(FileNotFoundError):
        target.rmdir()
    written.rename(target)


def write_zip(written: Path, target: Path) -> None:
    """Pack the folder `written` into the zip file `target`. Raises OSError.

    Inside the archive, the files are in a folder named like the zip file.
    """
    temporary = _create_temporary_path(target).with_suffix(".zip.part")
    try:
        with (
            open(temporary, "xb", opener=paths.open_private) as stream,
            zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive,
        ):
            for path in sorted(written.iterdir()):
                compression = zipfile.ZIP_STORED if path.suffix in _UNCOMPRESSED_EXTENSIONS else zipfile.ZIP_DEFLATED
                archive.write(path, f"{target.stem}/{path.name}", compression)
        os.replace(temporary, target)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def describe_written_file(path: Path, what: str) -> WrittenFile:
    """Return the description of a converted file, after restricting access to its owner. Raises OSError.

    `what` describes the content in a few words.
    """
    path.chmod(0o600)
    digest = hashlib.sha256()
    with open_file(path) as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return WrittenFile(name=path.name, what=what, size_bytes=path.stat().st_size, sha256=digest.hexdigest())


def _create_temporary_path(target: Path) -> Path:
    """Return a hidden path next to `target` that no other process uses."""
    return target.with_name(f".{target.name}.{os.getpid()}.part")
