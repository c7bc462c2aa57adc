"""Output of commands for prepared runs and results, compared with a golden file.

All numbers in the runs and results are different, so that no value can be mistaken for another one.

`FOOTPLATE_WRITE_TEXTS=1 pytest -n 0 tests/engine/cli/test_golden_output.py` writes the file again. Review its diff.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from engine.cli import children, evaluate, train
from engine.cli.main import main
from engine.cli.progress import ProgressDisplay
from engine.cli.terminal import BAD_REQUEST, FAILED
from engine.contract.advice import (
    Advice,
    BatchFound,
    BatchTrial,
    Candidate,
    JobTime,
    MachinesPrediction,
    Network,
    RateFound,
    RatePoint,
    SkippedCandidates,
)
from engine.contract.events import (
    AnyEvent,
    CheckpointSaved,
    Chosen,
    DevicesFree,
    EpochStarted,
    EventsLost,
    Failed,
    Fetching,
    LogLine,
    PhaseChanged,
    Restarting,
    RunDevice,
    RunFinished,
    RunStarted,
    StepMetrics,
    Validation,
    Verdict,
    Waiting,
    Warned,
)
from engine.contract.hosts import Host, put_host
from engine.contract.inference.conversion import (
    ComparedFile,
    ConversionResult,
    Difference,
    NextCommand,
    OnnxOptions,
    Target,
    WrittenFile,
)
from engine.contract.inference.evaluation import EVALUATION_FILE, BoxErrors, Interval
from engine.contract.inference.explanation import ExplainedImage, Explanation, HeatMap
from engine.contract.inference.prediction import Predicted, PredictedRow, PredictRequest, SkippedFile, WrittenFormat
from engine.contract.inference.review import DuplicatePair, LabelIssue, Review, ReviewedSample
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.parallel.split_points import compute_stages
from engine.runs.folder import RunFolder
from engine.runs.notes import change_notes
from engine.system import paths
from tests.engine.cli.machines import NOON
from tests.engine.cli.prepared_commands import COMMANDS, DATASET
from tests.engine.cli.terminal import TerminalStream, run_in_this_process
from tests.gui.run.model.saved_evaluations import save_evaluation
from tests.gui.sources.written_runs import make_plan, write_run
from tests.gui.split_points.example import make_split
from tests.support.golden import check_section
from tests.support.made_searches import make_search

GOLDEN = Path(__file__).with_name("golden_output.txt")
JOB = Job.from_fields(dataset=str(paths.sample_dataset()), model="mnist_cnn", image_size=28, batch_size=8)
GIB, MIB = 1 << 30, 1 << 20
ADVICE = Advice(
    table=(
        Candidate(
            name="DDP, 2 devices", strategy="ddp", devices=("cpu", "cpu"), images_per_second=812.5, low=800.0, high=830.0,
            changes={"strategy": "ddp", "devices": ("cpu", "cpu"), "pretrained": False, "microbatches": None},
            memory_bytes=2 * GIB, estimated_bytes=3 * GIB, efficiency=0.81, joules_per_thousand_images=640.0,
            time=JobTime(total_s=7265.0, start_s=20.0, epochs=5, steps=10, step_s=1.5, validation_s=2.5,
                         measured=("step", "data"), estimated=("start",)),
        ),
        Candidate(name="Single device", strategy="single", devices=("cpu",), changes={}, is_requested=True,
                  images_per_second=500.0, low=490.0, high=505.0, efficiency=1.0),
        Candidate(name="FSDP", strategy="fsdp", devices=("cpu", "cpu"), changes={}, why="It ran out of memory."),
    ),
    fits=True, sentence="DDP is fastest.", remedies=("Use bf16.",), what_would_change=("More images.",), considered=9,
    left_out=(SkippedCandidates("memory", ("TP", "PP"), "They need more memory than a device has."),), memory_by="fake_tensors",
    ended_by="settled", confidence=0.95, took_s=41.0, measured_at=1.8e9, hardware=("2 x NVIDIA H200",), versions={},
    machines=(MachinesPrediction(machines=2, images_per_second=1500.0, efficiency=0.9, total_s=3600.0, sent_bytes=7,
                                 sending_s=0.1, sentence="2 machines would be faster."),),
)  # fmt: skip
RATE = RateFound(
    points=tuple(RatePoint(10.0**power, 1.0, 1.0 + abs(power + 3) / 4) for power in range(-7, 2)),
    suggestion=2.5e-3, why="It falls there.", steepest=1e-2, valley=1e-4, smoothing=0.4, diverged=True,
)  # fmt: skip
BATCH = BatchFound(
    trials=(
        BatchTrial(size=64, fits=True, images_per_second=300.5, memory_bytes=100 * MIB, limit_bytes=GIB, limit="memory"),
        BatchTrial(size=256, fits=True, images_per_second=590.0, memory_bytes=200 * MIB, limit_bytes=2 * GIB, limit="GPU 0"),
        BatchTrial(size=1900, fits=True, images_per_second=600.0, memory_bytes=900 * MIB, limit_bytes=GIB, limit="memory"),
        BatchTrial(size=3000, fits=False),
    ),
    largest=1900, knee=256, why="Batches of 1,900 are the largest that fit.",
)  # fmt: skip
EXPLANATION = Explanation(
    run="a-run", checkpoint="best.pt", task="classification", method="grad-cam", layer="layer4.1", grid=(7, 9),
    images=(
        ExplainedImage(
            path="one.png", predicted="ash 80%", side_by_side="one-all.png",
            maps=(HeatMap(class_name="ash", overlay="one-ash.png", raw="r.png", score=0.8),
                  HeatMap(class_name="birch", overlay="one-birch.png", raw="r.png", empty=True, note="It is small.")),
        ),
        ExplainedImage(path="two.png", reason="It can't be read."),
    ),
)  # fmt: skip
PREDICTED = Predicted(
    run="a-run", checkpoint="best.pt", sha256="00", task="classification", classes=("ash", "birch"),
    request=PredictRequest(run="a-run", paths=("x",), out="/results", devices=("cpu",), checkpoint="best", batch_size=None),
    samples=20, predicted=12, skipped_count=7, skipped=tuple(SkippedFile(f"{n}.png", f"reason {n}") for n in range(6)),
    files=(WrittenFormat(path="predictions.csv", format="csv", count=1), WrittenFormat(path="overlays", format="overlays", count=12)),
    class_counts=(5, 7), seconds=3.25, finished_at=1.8e9, images_per_second=1234.5,
    rows=tuple(PredictedRow(path=f"image-{n}.png", text=f"class {n}") for n in range(12)),
)  # fmt: skip
CONVERTED = ConversionResult(
    run_id="a-run", task="classification", model="resnet18", checkpoint="best.pt", checkpoint_sha256="00", classes=("ash",),
    out="/exports/one", created_at=1.8e9, seconds=63.0,
    files=(WrittenFile(name="model.onnx", what="the model", size_bytes=45 * MIB, sha256="11"),),
    compared=(
        ComparedFile(
            name="model.onnx", runtime="ONNX Runtime", compared_on="validation", samples=20, milliseconds=3.5,
            differences=(Difference(batch_size=1, difference=2e-6, largest_output=3.0),
                         Difference(batch_size=4, difference=5e-5, largest_output=3.0)),
            measures={"top1": 0.75, "loss": 0.5}, torch_measures={"top1": 0.8}, torch_milliseconds=9.25,
        ),
        ComparedFile(name="model.pte", runtime="ExecuTorch", compared_on="random", differences=()),
    ),
    problems=(Problem("to", "No 8-bit file was written.", "Install onnxruntime."),),
    next_commands=(NextCommand(purpose="To try it", command="python try.py"),),
)  # fmt: skip
ONE, OTHER = (
    ReviewedSample(
        path=f"val/{name}/1.png", split="val", true=(name,), predicted=("cedar",), loss=loss, correct=correct
    )
    for name, loss, correct in (("ash", 3.25, 0.04), ("birch", 1.5, 0.0))
)
REVIEW = Review(
    id="1", date="2026-11-24T11:00:00Z", run="a-run", task="classification", dataset="/data/trees", evaluations=(),
    classes=("ash", "birch", "cedar"), samples=40, checked_samples=40, held_out=True, origin="Predictions for validation.",
    worst=(ONE, OTHER),
    label_issues=(
        LabelIssue(sample=ONE, given="ash", suggested="cedar", probability=0.1, suggested_probability=0.83),
        LabelIssue(sample=OTHER, given="", suggested="birch", probability=0.2, suggested_probability=0.67),
    ),
    expected_errors=3,
    duplicates=(DuplicatePair(first=ONE, second=OTHER, distance=2, labels_differ=True),
                DuplicatePair(first=OTHER, second=ONE, distance=0, exact=True)),
    missing=("1 image can't be read.",),
)  # fmt: skip


def make_saver(answer: Any) -> Callable[[Path], Path]:
    """Return a function that saves `answer` as a file in a folder and returns the file's path.

    The function replaces the process that computes the answer.
    """

    def save(folder: Path) -> Path:
        path = folder / "answer.json"
        path.write_bytes(msgspec.json.encode(answer))
        return path

    return save


def save_detector_evaluation(folder: Path, wrong: tuple[int, ...] = (1, 4, 5)) -> Path:
    """Save an evaluation of a detector, in which one class has no F1 score. Return its file.

    `wrong` are the numbers of the samples with wrong predictions.
    """
    name = f"20261124-10000{len(wrong)}-val"
    saved = save_evaluation(RunFolder(folder), folder / "data", name, wrong=wrong)
    scores = {"F1": (Interval(0.7, 0.6, 0.85), None, Interval(0.25)), **saved.evaluation.per_class}
    errors = tuple(
        BoxErrors(kind, n, 0.001 * (20 - n) ** 2) for n, kind in ((9, "missed"), (2, "both"), (11, "background"))
    )  # type: ignore[arg-type]
    changed = msgspec.structs.replace(
        saved.evaluation,
        per_class=dict(sorted(scores.items(), reverse=True)),
        box_errors=errors,
        samples=9 + len(wrong),
    )
    (saved.folder / EVALUATION_FILE).write_bytes(msgspec.json.encode(changed))
    return saved.folder / EVALUATION_FILE


def make_runs() -> None:
    trees = write_run(8, name="trees")
    change_notes(trees.path, tags=("paper", "v2"), favorite=True)
    write_run(
        12, "failed", name="flowers", cause="a fault", model="/models/resnet50.py", devices=("cpu", "cpu"), strategy="ddp",
    )  # fmt: skip


def make_hosts() -> None:
    put_host(Host(name="atlas", destination="me@atlas.example", gpus=4, address="10.0.0.2", port=30100, folder="~/fp"))
    put_host(Host(name="boreas"))
    put_host(Host(name=""))


ANSWERS: dict[str, tuple[tuple[str, ...], Any]] = {
    "advise": (("advise", "DATA"), ADVICE),
    "find-lr": (("find-lr", "DATA"), RATE),
    "find-batch": (("find-batch", "DATA"), BATCH),
    "find-split-points": (("find-split-points", "DATA"), make_split(memory_bytes=(500_000, None))),
    "explain": (("explain", "RUN", "one.png", "two.png"), EXPLANATION),
    "predict": (("predict", "RUN", "one.png"), PREDICTED),
    "convert": (("convert", "RUN"), CONVERTED),
    "review": (("review", "RUN", "--evaluation", "1"), REVIEW),
}
"""Commands whose work a child process does: their arguments, and the result of the child process."""
LISTS: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "runs": (make_runs, ("runs",)),
    "attach": (make_runs, ("attach", "flowers")),
    "hosts": (make_hosts, ("hosts",)),
    "search": (lambda: make_search("flowers", 6, running=1), ("search", "flowers")),
    "search with two goals": (lambda: make_search("both", 4, goals=2), ("search", "both")),
    "searches": (lambda: (make_search("flowers", 6, running=1), make_search("both", 9, goals=2)), ("search", "--list")),
}
"""Commands that list the contents of the home folder: a function that creates these contents, and arguments."""


EVENTS: tuple[AnyEvent, ...] = (
    Waiting(position=2, behind=("20260101-120000-resnet18-1a2b",), others=("python of anna is on GPU 0",), held=True),
    RunStarted(
        run_id="a-run", job=JOB, devices=(RunDevice(id="cpu", name="AMD EPYC", ranks=(0, 1)),), world_size=2,
        environment={}, supervisor_pid=1,
    ),
    PhaseChanged(phase="fetching", detail="the weights"),
    Fetching(source="timm", done_bytes=10 * MIB, total_bytes=98 * MIB, time=100.0),
    Fetching(source="timm", done_bytes=42 * MIB, total_bytes=98 * MIB, time=108.0),
    Fetching(source="timm", done_bytes=90 * MIB, total_bytes=98 * MIB, time=110.0),
    PhaseChanged(phase="fetching", detail="other weights"),
    Fetching(source="timm", done_bytes=20 * MIB, total_bytes=30 * MIB, time=120.0),
    Fetching(source="timm", done_bytes=43 * MIB, time=129.0),
    PhaseChanged(phase="preparing", detail="Reading the images."),
    Chosen(field="picture_cache", choice="memory", why="they take 3 MiB"),
    make_plan(train_images=320),
    Validation(epoch=1, step=10, measures={"top1": 0.5}, images=20, seconds=6.0, time=999.0),  # the start was lost
    EpochStarted(epoch=1, time=1000.0),
    EpochStarted(epoch=2, time=1005.0),
    *(
        StepMetrics(time=1000.0 + 0.5 * step, epoch=1 + step // 10, step=step, loss=2.0 / step, accuracy=0.5,
                    learning_rate=0.1, images_per_second=1234.5, data_wait_s=0.01, compute_s=0.1)
        for step in (1, 2, 12)
    ),
    Validation(epoch=2, step=12, measures={"top1": 0.75, "loss": 0.5}, images=20, seconds=6.0, time=1071.0),
    CheckpointSaved(kind="last", path="last.pt", epoch=2, step=12, bytes=3 * MIB, seconds=0.1),
    CheckpointSaved(kind="best", path="best.pt", epoch=2, step=12, bytes=5 * MIB, seconds=0.1),
    *(LogLine(text="a line", rank=rank) for rank in (None, 0, 1)),
    Warned(code="x", message="Something is odd."),
    EventsLost(count=3, reason="the disk was full"),
    Restarting(cause="Rank 1 was killed.", attempt=2, max_attempts=3),
    Restarting(cause="A GPU was lost.", attempt=1, max_attempts=3, changes={"batch_size": 6}, devices=("cpu",)),
    make_plan(from_step=12),
    *(StepMetrics(time=2000.0 + step, epoch=2, step=step, loss=1.0, learning_rate=0.1, images_per_second=9.0, data_wait_s=0.0, compute_s=0.1)
      for step in (13, 14)),
    make_plan(),
    Verdict(code="falling", sentence="It was still falling.", changes={"epochs": 26}),
    Verdict(code="weak_classes", sentence="“ant” is rare.", changes={"oversample": True, "augmentation": "light"}),
    Verdict(code="converged", sentence="Converged: the best epoch was 17 of 20."),
    Verdict(code="overfitted", sentence="Turn a field down that this version doesn't know.", changes={"warp": 9}),
    PhaseChanged(phase="pausing"),
    PhaseChanged(phase="stopping"),
    PhaseChanged(phase="stopping"),
    Failed(cause="Out of memory."),
    DevicesFree(seconds=1.0, verified=True),
    DevicesFree(seconds=1.0, verified=False),
    RunFinished(outcome="unsaved", cause="The disk is full.", seconds=3723.0, best={"top1": 0.75}, best_epoch=2,
                checkpoints=("checkpoints/best.pt",)),
    RunFinished(outcome="stopped", seconds=7.0),
)  # fmt: skip


@pytest.mark.parametrize("columns", [80, 200])
def test_events_are_printed_in_full(columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    terminal = TerminalStream()
    progress = ProgressDisplay(RunFolder(tmp_path / "a-run"), terminal, terminal)
    for event in EVENTS:
        progress.show(event)
    screen = terminal.getvalue().replace("\r\x1b[K", "\n> ").replace("\n> \n", "\n")
    check(f"events at {columns} columns", screen, tmp_path)


def check(name: str, out: str, home: Path) -> None:
    for folder in (home / "home", home):
        out = out.replace(str(folder), "HOME")
    out = out.replace(sys.executable, "BIN/python").replace(str(Path(sys.executable).parent), "BIN")
    out = out.replace(os.environ["XDG_RUNTIME_DIR"], "RUNTIME")
    for number, run_id in enumerate(dict.fromkeys(re.findall(r"\d{8}-\d{6}-[\w-]+?-[0-9a-f]{4}\b", out)), 1):
        out = out.replace(run_id, f"RUN-{number}")
    check_section(GOLDEN, name, out)


def insert_paths(arguments: Iterable[str], run: Path | None = None) -> list[str]:
    """Replace the arguments RUN and DATA by the folders of a run and of the sample dataset."""
    return [{"RUN": str(run), "DATA": DATASET}.get(argument, argument) for argument in arguments]


@pytest.fixture(autouse=True)
def _valid_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "validate", lambda _options: (JOB, []))


@pytest.mark.parametrize("name", ANSWERS)
def test_answer_is_printed_in_full(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, answer = ANSWERS[name]
    is_saved = "RUN" in arguments
    run = write_run(8).path if is_saved else None
    path = make_saver(answer)(tmp_path)
    monkeypatch.setattr(children, "run_in_child", lambda _request, **_options: path if is_saved else answer)
    given = insert_paths(arguments, run)
    assert main(given) == 0
    check(name, capsys.readouterr().out, tmp_path)
    assert main([*given, "--json"]) == 0
    content = {"model_split": answer, "stages": compute_stages(answer)} if name == "find-split-points" else answer
    assert json.loads(capsys.readouterr().out) == json.loads(msgspec.json.encode(content))


REQUESTS: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
    ("advise", (), {"seconds": 60.0, "remeasure": False, "machines": 1, "network": None, "refused": FAILED}),
    ("find-lr", (), {"finder": "rate", "refused": FAILED}),
    ("find-batch", (), {"finder": "batch", "refused": FAILED}),
    ("find-split-points", (), {"refused": BAD_REQUEST, "is_quiet": False}),
    ("advise", ("--seconds", "5", "--again", "--machines", "10000", "--network", "250mbit/s, 3MS"),
     {"seconds": 5.0, "remeasure": True, "machines": 10_000, "network": Network(2.5e8, 3e-3)}),
    ("advise", ("--machines", "2", "--network", "10Gbit,50us"), {"network": Network(1e10, 50 * 1e-6)}),
    ("advise", ("--network", "10Gbit"), {"machines": 1, "network": Network(1e10)}),
    ("explain", (), {"method": "grad-cam", "classes": (), "out": "WORK/explained-RUN", "paths": ("WORK/one.png", "WORK/two.png"),
                     "run": "RUNS/RUN", "devices": ("cpu",), "batch_size": None}),
    ("explain", ("~/three.png", "--method", "eigen-cam", "--class", "ash,birch", "--out", "~/maps"),
     {"method": "eigen-cam", "classes": ("ash", "birch"), "out": "WORK/maps",
      "paths": ("WORK/one.png", "WORK/two.png", "WORK/three.png")}),
    ("predict", (), {"out": "WORK/predictions-RUN", "formats": (), "overlays": False, "tile": None, "overlap": 0.2,
                     "threshold": 0.5, "max_frames": None, "checkpoint": "best"}),
    ("predict", ("camera:0", "--tile", "512", "--overlap", "0.1", "--threshold", "0.25", "--max-frames", "9", "--overlays",
                 "--format", "csv,json", "--batch-size", "1", "--checkpoint", "last", "--devices", "cpu,cpu"),
     {"paths": ("WORK/one.png", "camera:0"), "formats": ("csv", "json"), "overlays": True, "tile": 512, "overlap": 0.1,
      "threshold": 0.25, "max_frames": 9, "batch_size": 1, "checkpoint": "last", "devices": ("cpu", "cpu")}),
    ("predict", ("--tile", "auto"), {"tile": "auto"}),
    ("convert", ("--to", "onnx", "safetensors", "onnx", "--int8", "--opset", "19"),
     {"to": ("onnx", "safetensors"), "packed": False, "onnx": OnnxOptions(int8=True, opset=19),
      "out": "RUNS/RUN/exports/%Y%m%d-%H%M%S-onnx-safetensors-onnx"}),
    ("convert", ("--out", "new"), {"out": "WORK/new", "devices": ("cpu",)}),
    ("handover", (), {"to": get_args(Target), "packed": True, "out": "WORK/RUN-handover.zip"}),
    ("convert", ("--no-preprocessing",), {"to": ("onnx",), "onnx": OnnxOptions(preprocessing=False)}),
    ("review", (), {"evaluations": ("RUNS/RUN/evaluations/1",), "worst": 20, "labels": True, "duplicates": True}),
    ("review", ("--worst", "0", "--class", "ash"), {"worst": 0, "true": "ash", "labels": False, "duplicates": False}),
    ("review", ("--predicted", "ash"), {"predicted": "ash", "labels": False, "duplicates": False}),
    ("review", ("--labels",), {"labels": True, "duplicates": False}),
]  # fmt: skip
"""Commands of `ANSWERS`, additional flags, and expected fields of the request to the child process."""


@pytest.mark.parametrize(("name", "flags", "expected"), REQUESTS)
def test_request_follows_the_flags(
    name: str, flags: tuple[str, ...], expected: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[Any] = []
    arguments, answer = ANSWERS[name.replace("handover", "convert")]
    run, saved = write_run(8).path, make_saver(answer)(tmp_path)

    def carry_out(request: Any, **options: Any) -> Any:
        requests.append({field: getattr(request, field, None) for field in expected} | options)
        return saved if "RUN" in arguments else answer

    monkeypatch.setattr(children, "run_in_child", carry_out)
    monkeypatch.setattr(time, "strftime", str)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    places = {"WORK": str(tmp_path), "RUNS": str(run.parent), "RUN": run.name}

    def replace_places(text: Any) -> Any:
        if isinstance(text, tuple):
            return tuple(map(replace_places, text))
        return re.sub("WORK|RUNS|RUN", lambda match: places[match[0]], text) if isinstance(text, str) else text

    assert main([name, *insert_paths(arguments[1:], run), *flags]) == 0
    found = {field: requests[-1].get(field) for field in expected}
    assert found == {field: replace_places(value) for field, value in expected.items()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("convert", "RUN", "--to", "safetensors", "onnx", "--opset", "3"), "Opset 3 can't be written."),
        (("predict", "RUN", "one.png", "--tile", "big"), "--tile: “big” is not a tile size."),
        (("predict", "RUN", "one.png", "--format", "csv,xml"), "--format: There is no format “xml”."),
        (("predict", "RUN", "one.png", "--batch-size", "0"), "--batch-size: The batch size must be at least 1."),
        (("explain", "RUN", "one.png", "--devices", "node1:cpu"), "devices of other machines"),
        (("advise", "DATA", "--network", "0Gbit"), "--network: “0Gbit” is not a network."),
        (("runs", "--bogus"), "unrecognized arguments: --bogus"),
    ],
)
def test_bad_request_starts_no_child(arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "run_in_child", lambda _request, **_options: pytest.fail("a child has started"))
    answer = run_in_this_process(*insert_paths(arguments, write_run(8).path))
    assert (answer.code, message in answer.err) == (BAD_REQUEST, True), answer


@pytest.mark.parametrize("name", LISTS)
def test_list_is_printed_in_full(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare, arguments = LISTS[name]
    prepare()
    main(arguments)
    check(name, capsys.readouterr().out, tmp_path)


@pytest.mark.parametrize("against", [(), ("--against", "RUN")])
def test_evaluation_is_printed_in_full(
    against: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(8)
    count = 2 if against else 1
    evaluations = [save_detector_evaluation(run.path), save_detector_evaluation(run.path, (2, 3, 4, 5, 9))][:count]
    requests: list[Any] = []

    def carry_out(request: Any, **_options: Any) -> Path:
        requests.append(request)
        return evaluations[(len(requests) - 1) % count]

    monkeypatch.setattr(children, "run_in_child", carry_out)
    monkeypatch.setattr(evaluate, "MAX_CLASSES", 3)
    (run.checkpoints / "last.pt").touch()
    given = insert_paths(("evaluate", "RUN", *against, "--checkpoint", "last", "--split", "test"), run.path)
    assert main([*given, "--csv", str(tmp_path / "out.csv")]) == 0
    expected = [("last", "", "test"), ("best", str(run.path / "data"), "val")][:count]
    assert [(request.checkpoint, request.dataset, request.split) for request in requests] == expected
    table = (tmp_path / "out.csv").read_text()
    check("evaluate against" if against else "evaluate", capsys.readouterr().out + table, tmp_path)
    assert main([*given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["samples"], found.get("path")) == (12, None if against else str(evaluations[0].parent))
    monkeypatch.setattr(evaluate, "MAX_CLASSES", 2)
    main(given)
    printed = capsys.readouterr().out
    assert ("The 2 worst of 3 classes." in printed, "birch " in printed) == (not against, False)
    evaluations[-1].write_text("{")
    assert main(given) == FAILED


@pytest.mark.parametrize("name", COMMANDS)
def test_command_is_printed_in_full(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    prepare, arguments = COMMANDS[name]
    prepare(monkeypatch)
    monkeypatch.setattr(time, "time", lambda: NOON)
    monkeypatch.setenv("COLUMNS", "200" if "200" in name else "80")
    code = main(arguments)
    check(name, f"{''.join(capsys.readouterr())}exit code {code}", tmp_path)
