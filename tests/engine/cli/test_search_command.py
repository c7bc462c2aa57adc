"""``footplate search``: start, lists and results."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import msgspec
import pytest

from engine.cli import main, search_views
from engine.cli import search as search_command
from engine.cli.main import create_parser
from engine.cli.search import build_search
from engine.contract.job import save_job
from engine.contract.problems import Problem, errors
from engine.contract.search import Choices, Range, Search, SearchState, TrialRow
from engine.runs.folder import RunFolder, create_run, list_runs
from engine.runs.searches import DriverFile, SearchFolder, create_search, list_searches, searches_folder
from tests.engine.cli.terminal import Answer, footplate
from tests.gui.sources.written_runs import write_run
from tests.support.made_searches import make_search_config, make_state
from tests.support.searches import make_small_job, make_small_search

pytestmark = pytest.mark.usefixtures("cached_children")

SPACE = """
goals = ["top1"]
trials = 3
pruner = "none"
confirm = 0
devices = ["cpu", "cpu"]

[job]
data = {{ dataset = "{dataset}", image_size = 16 }}
model.name = "mnist_cnn"
training = {{ batch_size = 16, epochs = 1 }}
checkpoints.predictions = 0

[space]
learning_rate = {{ low = 1e-4, high = 1.0, log = true }}
optimizer = ["sgd", "adamw"]
"""


@pytest.fixture
def space(tmp_path: Path) -> Path:
    """Write a search file whose dataset is a relative path, and return it."""
    (tmp_path / "sample").symlink_to(make_small_job().data.dataset)
    file = tmp_path / "flowers.toml"
    file.write_text(SPACE.format(dataset="sample"))
    return file


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> Answer:
    """Run a command in this process and return its exit code and output."""
    code = main(arguments)
    return Answer(code, *capsys.readouterr())


def make_search(name: str = "small") -> SearchFolder:
    """Create a completed search with three trials (one pruned, one completed, one failed), and return its folder."""
    folder = create_search(make_small_search(name=name))
    best = {"learning_rate": 0.0123456, "optimizer": "adamw", "milestones": [1]}
    rows = (
        TrialRow(number=0, run_id="run-a", state="pruned", params=best, values=(0.5,), epoch=1, epochs=3),
        TrialRow(number=1, run_id="run-b", state="completed", params=best, values=(0.75,), epoch=3, epochs=3),
        TrialRow(number=2, run_id="run-c", state="failed", params=best, values=(None,), epochs=3, cause="It broke."),
    )
    importance = {"learning_rate": 0.8, "optimizer": 0.2}
    folder.save_state(
        SearchState(time=1.0, ended="completed", trials=rows, best=1, front=(1,), importance=importance, total=3)
    )
    return folder


@pytest.mark.long
def test_search_runs_continues_and_trains_the_best(space: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = footplate("search", str(space), "--trials", "2")
    assert answer.code == 0, answer.err
    assert "flowers: completed, 2/2 trials" in answer.out
    assert "Trial 0 completed after 1 epoch: Top-1 accuracy" in answer.out
    printed = run_command(capsys, "search", "flowers")
    assert "Best: trial" in printed.out
    assert "footplate search flowers --train-best" in printed.out
    best = SearchFolder(list_searches()[0].path).state().best
    assert best in (0, 1)
    assert "can't train its best" in run_command(capsys, "search", str(space), "--train-best", "--detach").err
    answer = footplate("search", str(space), "--detach", "--best-epochs", "2")
    assert (answer.code, answer.out) == (0, "flowers\n")
    answer = footplate("search", "flowers", "--continue", "--json")
    *rows, state = map(json.loads, answer.out.splitlines())
    assert state["ended"] == "completed"
    assert len(state["trials"]) == 3, "the file's budget is larger"
    assert len(rows) <= 1
    answer = footplate("search", "flowers", "--train-best")
    assert answer.code == 0, answer.err
    job = list_runs()[0].job()
    assert job is not None
    assert (job.name, job.training.epochs) == ("flowers best", 2)


def test_search_lists_and_shows_searches(capsys: pytest.CaptureFixture[str]) -> None:
    assert "There are no searches." in run_command(capsys, "search", "--list").out
    stopped = make_search().state()
    SearchFolder(searches_folder() / "small").save_state(msgspec.structs.replace(stopped, ended="stopped"))
    make_search("other")
    head, first, second = run_command(capsys, "search", "--list").out.splitlines()
    assert head.split() == ["SEARCH", "STATE", "TRIALS", "PRUNED", "FAILED", "BEST", "TIME", "LEFT"]
    assert first.split() == ["other", "completed", "3/3", "1", "1", "75.0%", "0", "s", "–"]
    assert second.split()[:2] == ["small", "stopped"]
    printed = run_command(capsys, "search", "small").out
    assert "small: stopped, 3/3 trials, 1 pruned, 1 failed" in printed
    assert "1 ★" in printed
    assert "Best: trial 1, 75.0%\nIts settings: learning_rate=0.01235, optimizer=adamw, milestones=[1]\n" in printed
    assert "CONFIRMED" not in printed
    assert "Importance for top-1 accuracy: learning_rate 80%, optimizer 20%" in printed
    listed = [json.loads(line) for line in run_command(capsys, "search", "--list", "--json").out.splitlines()]
    assert [(one["name"], one["status"], one["state"]["best"]) for one in listed] == [
        ("other", "completed", 1),
        ("small", "stopped", 1),
    ]


def test_running_search_shows_its_remaining_time() -> None:
    search, state = make_search_config(), make_state(6, running=2)
    assert search_views.format_search(search, state, "running")[0].endswith(" worked, 2:00:00 h left")
    assert search_views.format_search_table([(search, state, "running")])[1].endswith("  2:00:00 h")
    line = "4/26 trials, best 87.3%, 2:00:00 h left · trial 4: epoch 12/30"
    assert search_views.format_progress(search, state) == line
    waiting = msgspec.structs.replace(state, trials=state.trials[:4], seconds_left=None, total=None)
    assert search_views.format_progress(search, waiting) == "4 trials, best 87.3% · starting"


def test_search_shows_confirmations(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    search = make_small_search(confirm=1)
    params = {"learning_rate": 0.1, "optimizer": "sgd", "milestones": [1]}
    originals = [
        TrialRow(number=n, run_id=f"run-{n}", state="completed", params=params, values=(value,), epoch=3, epochs=3)
        for n, value in enumerate((0.5, 0.86, 0.8))
    ]
    repeats = [
        msgspec.structs.replace(
            originals[again], number=3 + k, repeat_of=again, params=params | {"seed": 1}, state=state
        )
        for k, (again, state) in enumerate(((1, "completed"), (2, "completed"), (0, "running")))
    ]
    state = SearchState(
        time=1.0,
        trials=(*originals, *repeats),
        best=1,
        front=(1,),
        total=6,
        candidates=(1, 2, 0),
        baseline=0,
        repeats=3,
        worked_s=60.0,
    )
    line = search_views.format_progress(search, state)
    assert line.startswith("Confirming the best 3 settings with other seeds: 2 of 3 trained, best 86.0%")
    assert line.endswith("trial 0, seed 1: epoch 3/3")
    assert search_views.format_trial(search, repeats[0]).startswith("Trial 1, seed 1 completed after 3 epochs: Top-1")
    means = (0.502, 0.79, 0.853)
    confirmed = [msgspec.structs.replace(row, confirmed=(mean,)) for row, mean in zip(originals, means, strict=True)]
    done = [msgspec.structs.replace(row, state="completed") for row in repeats]
    folder = create_search(search)
    folder.save_state(msgspec.structs.replace(state, trials=(*confirmed, *done), best=2, front=(2,), ended="completed"))
    assert "  85.3%" in run_command(capsys, "search", "--list").out
    printed = run_command(capsys, "search", "small").out
    assert "small: completed, 3/3 trials, 1:00 min worked\n" in printed
    assert "Confirming" not in printed
    assert "Best: trial 2, 80.0%; 85.3% over 1 other seed, 50.2% with the job's own settings\n" in printed
    rows = {line.split("  ")[0].strip(): line.split() for line in printed.splitlines()}
    assert rows["TRIAL"][5:7] == ["ACCURACY", "CONFIRMED"]
    assert {"85.3%", "run-2"} <= set(rows["2 ★"])
    assert "2, seed 1" in rows
    trained: list[TrialRow] = []
    monkeypatch.setattr(
        "engine.cli.search.train_best", lambda _search, row: trained.append(row) or create_run(make_small_job())
    )
    for flag in ("--train-best", "--train-best=0", "--train-best=1"):
        run_command(capsys, "search", "small", flag, "--detach")
    assert [row.number for row in trained] == [2, 0, 1]


def test_search_refuses_bad_requests(space: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space.write_text(space.read_text().replace("low = 1e-4", "low = 2").replace('"top1"', '"top1", "miou"'))
    answer = run_command(
        capsys, "search", str(space), "--hours", "-1", "--confirm", "11", "--vary", "momentum=0.5..2", "--vary", "mixup"
    )
    assert answer.code == 2
    for arguments in (
        "space.learning_rate: ",
        "goals: “miou” is not",
        "hours: -1",
        "confirm: 11",
        "space.momentum: ",
        "--vary: “mixup”",
    ):
        assert f"footplate: {arguments}" in answer.err, arguments
    assert run_command(capsys, "search", "nothing.toml").err.startswith("footplate: search: nothing.toml can't be read")
    assert "there is no search “nobody”. There are no searches." in run_command(capsys, "search", "nobody").err
    assert list_searches() == []
    make_search("flowers")
    space.write_text(SPACE.format(dataset="sample"))
    assert "with another job" in run_command(capsys, "search", str(space)).err
    assert "there is no search “nobody”. There are flowers." in run_command(capsys, "search", "nobody").err
    assert "is not running; it is completed" in run_command(capsys, "search", "flowers", "--stop").out
    answer = run_command(capsys, "search", "flowers", "--train-best", "9")
    assert "no single best trial. Choose one: --train-best NUMBER, of 1." in answer.err
    assert "flowers can't be read" in run_command(capsys, "search", "flowers", "--vary", "epochs=1,2").err
    for number in ("--train-best", "--train-best=0"):
        answer = run_command(capsys, "search", str(space), "--name", "other", number, "--detach")
        assert (answer.code, "footplate: --train-best: A detached" in answer.err) == (2, True)
    assert list_runs() == []


def build_from(*arguments: str) -> tuple[Search | None, list[Problem]]:
    options, options.unknown = create_parser().parse_known_args(["search", *arguments])
    return build_search(options)


def test_flags_override_the_space_file(space: Path, tmp_path: Path) -> None:
    save_job(make_small_job(batch_size=8, devices=("cpu",) * 6), tmp_path / "job.toml")
    save_job(make_small_job(batch_size=4, devices=("cpu",) * 4), tmp_path / "other.toml")
    space.write_text('job = "job.toml"\ntrials = 3\nconfirm = 0\nspace.epochs = [1, 2]\n')
    dimensions = {
        "learning-rate=1e-4..1, log": ("learning_rate", Range(low=1e-4, high=1, log=True)),
        "batch_size=8..64,step=8": ("batch_size", Range(low=8, high=64, step=8)),
        "clip_norm=none,0.5": ("clip_norm", Choices(values=(None, 0.5))),
        "nesterov=true,False": ("nesterov", Choices(values=(True, False))),
        "optimizer=sgd, adamw": ("optimizer", Choices(values=("sgd", "adamw"))),
    }
    vary = [f"--vary={each}" for each in dimensions]
    search, problems = build_from(str(space), *vary, "--search-seed", "7", "--keep-all", "--devices-per-trial", "2")
    assert not errors(problems)
    assert search is not None
    assert (search.name, search.seed, search.keep_checkpoints, search.budget.trials) == ("flowers", 7, True, 3)
    assert search.space == {"epochs": Choices(values=(1, 2)), **dict(dimensions.values())}
    assert (search.devices, search.job.parallel.devices, search.job.training.batch_size) == (
        ("cpu",) * 6,
        ("cpu",) * 2,
        8,
    )
    for arguments, expected in (
        (("--job", str(tmp_path / "other.toml"), "--trials", "5", "--name", "mine"), ("mine", 5, 4, 4)),
        (("--devices", "cpu", "--batch-size", "2"), ("flowers", 3, 1, 2)),
    ):
        search, problems = build_from(str(space), *arguments)
        assert search is not None, problems
        found = (search.name, search.budget.trials, len(search.devices), search.job.training.batch_size)
        assert found == expected
    inline = SPACE.format(dataset="sample").replace('devices = ["cpu", "cpu"]', "")
    space.write_text(
        inline.replace("[job]", '[job]\nparallel = { strategy = "single", devices = ["cpu", "cpu", "cpu"] }')
    )
    search, problems = build_from(str(space))
    assert search is not None, problems
    assert len(search.devices) == 3
    space.write_text('devices = ["cpu", "cpu"]\njob = "job.toml"\nspace.epochs = [1, 2]\n')
    search, _ = build_from(str(space))
    assert search is not None
    assert len(search.devices) == 2
    problems = build_from(str(space), "--devices-per-trial", "0", "--lr-typo", "1", "--hours=-1")[1]
    assert [problem.field for problem in errors(problems)] == ["--lr-typo", "devices_per_trial", "hours"]
    problems = build_from(
        str(space), "--epochs", "many", "--hours=-1", "--goal", "top1", "--vary", "options.my-width=1,2"
    )[1]
    assert [problem.field for problem in errors(problems)] == ["epochs", "space.options.my-width", "hours"]


@pytest.mark.parametrize(
    ("interrupts", "end", "code", "stops", "printed"),
    [
        ((0, 0), "completed", 0, 0, [1, 2]),
        ((0, 0), "failed", 3, 0, [1, 2]),
        ((1, 0), "stopped", 130, 1, [1, 2]),
        ((1, 1), "completed", 130, 1, [1]),  # the second Ctrl+C detaches
        ((2, 0), "completed", 130, 0, []),  # two at once detach, too
    ],
)
def test_search_is_followed_until_it_ends(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    interrupts: tuple[int, int],
    *,
    end: str,
    code: int,
    stops: int,
    printed: list[int],
) -> None:
    """Continue a search whose trials 1 and 2 end one after the other, with Ctrl+C in its first two polls."""
    folder = make_search()
    state, count, stopped = folder.state(), 0, list[SearchFolder]()

    def poll(_folder: SearchFolder) -> str:
        nonlocal count
        rows = [row if row.number <= count else msgspec.structs.replace(row, state="running") for row in state.trials]
        folder.save_state(msgspec.structs.replace(state, trials=tuple(rows)))
        for _ in range(interrupts[count] if count < 2 else 0):
            signal.raise_signal(signal.SIGINT)
        count += 1
        return end if count > 2 else "running"

    trained: list[int] = []

    def train_best(_search: Search, row: TrialRow) -> RunFolder:
        trained.append(row.number)
        return write_run(8)

    folder.save_state(msgspec.structs.replace(state, trials=state.trials[:1]))
    monkeypatch.setattr(search_command, "train_best", train_best)
    monkeypatch.setattr(search_command, "start_driver", lambda _folder: None)
    monkeypatch.setattr(search_command, "stop_driver", stopped.append)
    monkeypatch.setattr(search_command, "_POLL_S", 0.0)
    monkeypatch.setattr(SearchFolder, "status", poll)
    handler = signal.getsignal(signal.SIGINT)
    answer = run_command(capsys, "search", "small", "--continue", "--train-best")
    assert signal.getsignal(signal.SIGINT) == handler
    assert trained == [1] * (code == 0)
    assert ("Training the settings of trial 1 in full: run " in answer.err) == (code == 0)
    assert ("Trial 2 failed after 0 epochs: Top-1 accuracy –; " in answer.out) == (2 in printed)
    assert answer.out.count(": It broke.") == printed.count(2)
    assert (answer.code, len(stopped)) == (code, stops)
    assert [int(line.split()[1]) for line in answer.out.splitlines() if line.startswith("Trial ")] == printed
    is_detached = sum(interrupts) > 1
    assert (f"small: {end}" in answer.out, "in the background" in answer.err) == (not is_detached, is_detached)


def test_stop_waits_until_the_driver_has_exited(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_search()
    drivers = [DriverFile(pid=1, start_time=0.0)] * 2
    monkeypatch.setattr(search_command, "stop_driver", lambda _folder: True)
    monkeypatch.setattr(search_command, "_POLL_S", 0.0)
    monkeypatch.setattr(SearchFolder, "driver", lambda _folder: drivers.pop() if drivers else None)
    answer = run_command(capsys, "search", "small", "--stop")
    assert answer.out == "“small” is completed. To continue it: footplate search small --continue\n"
    assert (answer.code, drivers) == (0, [])


def test_search_continues_only_with_room(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    make_search()
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: type("Usage", (), {"free": 1 << 20}))
    answer = run_command(capsys, "search", "small", "--continue")
    assert (answer.code, "footplate: disk: The trials need about" in answer.err) == (2, True)
    assert SearchFolder(searches_folder() / "small").driver() is None


def test_search_starts_in_spite_of_warnings(
    space: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[SearchFolder] = []
    monkeypatch.setattr(search_command, "start_driver", started.append)
    answer = run_command(capsys, "search", str(space), "--wait-for-others", "--detach")
    assert (answer.code, [folder.name for folder in started]) == (0, ["flowers"])
    assert "footplate: warning: --wait-for-others: " in answer.err


def test_search_refuses_to_start_on_a_full_disk(
    space: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 1 << 20})
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: usage)
    answer = run_command(capsys, "search", str(space))
    assert answer.code == 2
    assert "footplate: disk: The trials need about" in answer.err
    assert list_searches() == []
