"""Downloads of weights from a local server, by the real child process."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.contract.events import EVENT, AnyEvent, Failed, Fetching
from engine.contract.weights import Weights, cached_path, find_weights, hub_cache, torch_cache
from engine.models import fetch
from tests.support.weights_server import Fault, WeightsServer

CONTENT = bytes(range(256)) * 4096
NAME = f"net-{hashlib.sha256(CONTENT).hexdigest()[:8]}.pth"
HUB = Weights(repository="timm/some.model")


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., WeightsServer]]:
    """Return a function that starts a server, which huggingface_hub uses in place of the real hub."""
    running = []

    def start(fault: Fault = "", files: dict[str, bytes] | None = None) -> WeightsServer:
        server = WeightsServer({"model.safetensors": CONTENT, NAME: CONTENT} if files is None else files, fault)
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        context = server.serving()
        context.__enter__()
        running.append(context)
        return server

    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield start
    for context in running:
        context.__exit__(None, None, None)


def process(weights: Weights, **given: object) -> subprocess.Popen[bytes]:
    text = msgspec.json.encode(weights).decode()
    command = [sys.executable, "-m", "engine.models.fetch", text]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **given)  # type: ignore[call-overload, no-any-return]


def run_download(weights: Weights, **given: object) -> tuple[int, list[AnyEvent]]:
    """Run the download process, and return its exit code and its events. `given` are further arguments of `Popen`."""
    with process(weights, **given) as child:
        output, errors = child.communicate(timeout=120)
    assert b"Traceback" not in errors, errors.decode()
    return child.returncode, [EVENT.decode(line) for line in output.splitlines()]


def read_cause(weights: Weights, **given: object) -> str:
    """Run a download that fails, and return the cause in its failure event. Check that no files remain.

    `given` are further arguments of `Popen`.
    """
    code, events = run_download(weights, **given)
    assert code == 1
    (failed,) = [event for event in events if isinstance(event, Failed)]
    assert failed.field == "pretrained"
    assert find_weights(weights).path == ""
    assert list_contents(hub_cache()) + list_contents(torch_cache()) == []
    return failed.cause


def list_contents(folder: Path) -> list[Path]:
    """Return the nonempty files below `folder`, except references and cache tags."""
    files = [path for path in folder.rglob("*") if path.is_file() and "refs" not in path.parts]
    return [path for path in files if path.stat().st_size and path.name not in ("CACHEDIR.TAG",)]


@pytest.mark.parametrize("of_hub", [True, False])
def test_weights_are_downloaded_once(serve: Callable[..., WeightsServer], of_hub: bool) -> None:
    server = serve()
    weights = HUB if of_hub else Weights(url=f"{server.address}/models/{NAME}")
    code, events = run_download(weights)
    assert code == 0
    last = events[-1]
    assert isinstance(last, Fetching)
    assert (last.done_bytes, last.total_bytes, last.source) == (len(CONTENT), len(CONTENT), weights.title)
    here = find_weights(weights)
    assert Path(here.path).read_bytes() == CONTENT
    assert here.bytes == len(CONTENT)
    server.requests.clear()
    assert run_download(weights) == (0, [])
    assert server.requests == []


@pytest.mark.long
def test_pickle_only_weights_are_downloaded(serve: Callable[..., WeightsServer]) -> None:
    serve(files={"pytorch_model.bin": CONTENT})
    assert run_download(HUB)[0] == 0
    assert Path(find_weights(HUB).path).name == "pytorch_model.bin"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("html", "such as a proxy or a login page. Log in there, or set HTTPS_PROXY"),
        ("gated", "is gated: its owner must grant you access. Request access there"),
        pytest.param("missing", "it is gone or private", marks=pytest.mark.long),
        ("damaged", "SHA-256 does not match"),
    ],
)
def test_hub_errors_have_remedies(serve: Callable[..., WeightsServer], fault: Fault, expected: str) -> None:
    serve(fault)
    message = read_cause(HUB)
    assert expected in message
    assert "rain from scratch" in message
    assert str(cached_path(HUB)) in message


@pytest.mark.long
def test_repository_without_weights_is_reported(serve: Callable[..., WeightsServer]) -> None:
    serve(files={})
    assert "has none of the files model.safetensors, pytorch_model.bin" in read_cause(HUB)


@pytest.mark.long
@pytest.mark.parametrize("fault", ["truncated", "broken"])
def test_interrupted_download_is_retried(serve: Callable[..., WeightsServer], fault: Fault) -> None:
    serve(fault)
    assert f"put model.safetensors of {os.environ['HF_ENDPOINT']}/timm/some.model at" in read_cause(HUB)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        pytest.param("html", "such as a proxy or a login page", marks=pytest.mark.long),
        pytest.param("missing", "can't be downloaded (404 Not Found)", marks=pytest.mark.long),
        ("truncated", f"was lost after {len(CONTENT) // 2:,} of {len(CONTENT):,} bytes"),
        ("damaged", "its SHA-256 does not match its name"),
    ],
)
def test_server_errors_have_remedies(serve: Callable[..., WeightsServer], fault: Fault, expected: str) -> None:
    server = serve(fault)
    assert expected in read_cause(Weights(url=f"{server.address}/{NAME}"))


@pytest.mark.parametrize("of_hub", [True, pytest.param(False, marks=pytest.mark.long)])
def test_full_disk_names_folder_and_remedy(serve: Callable[..., WeightsServer], of_hub: bool) -> None:
    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(CONTENT) // 2,) * 2)

    server = serve()
    weights = HUB if of_hub else Weights(url=f"{server.address}/{NAME}")
    message = read_cause(weights, preexec_fn=small)
    assert f"{cached_path(weights).parent} is full" in message
    assert ("HF_HUB_CACHE" if of_hub else "TORCH_HOME") in message


@pytest.mark.parametrize(
    ("code", "message", "remedy"),
    [
        (errno.EDQUOT, "is full", "Free some space there, or set TORCH_HOME"),
        (errno.EROFS, "can't be written (", "Get write permission there, or set TORCH_HOME"),
        (errno.EACCES, "can't be written (", "Get write permission there, or set TORCH_HOME"),
        (errno.EIO, "could not be downloaded (", "Try again. Train from scratch"),
    ],
)
def test_write_errors_have_remedies(monkeypatch: pytest.MonkeyPatch, code: int, message: str, remedy: str) -> None:
    def fail(*_: object, **_options: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fetch, "urlopen", fail)
    with pytest.raises(fetch.CannotFetch) as raised:
        fetch.fetch(Weights(url=f"http://127.0.0.1:9/{NAME}"), print)
    assert message in raised.value.message
    assert raised.value.remedy.startswith(remedy)


def test_missing_network_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    message = read_cause(Weights(url=f"http://127.0.0.1:9/{NAME}"))
    assert "http://127.0.0.1:9 can't be reached" in message
    assert f"put http://127.0.0.1:9/{NAME} at {torch_cache() / NAME}" in message
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "HF_HUB_OFFLINE prevents" in read_cause(HUB)


def test_progress_of_a_continued_download_starts_at_its_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def download(*_: object, tqdm_class: Any, **_options: object) -> Path:
        with tqdm_class(total=10, initial=4) as bar:
            bar.update(6)
        return tmp_path / "model.safetensors"

    (tmp_path / "model.safetensors").touch()
    monkeypatch.setattr("tqdm.tqdm.monitor_interval", 0)  # start no thread
    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    reported: list[tuple[int, int | None]] = []
    fetch.fetch(HUB, lambda done, total: reported.append((done, total)))
    assert reported == [(10, 10)]


def test_damaged_cached_file_is_named(serve: Callable[..., WeightsServer]) -> None:
    serve()
    assert run_download(HUB)[0] == 0
    path = Path(find_weights(HUB).path)
    path.write_bytes(b"something else")
    code, (failed,) = run_download(HUB)
    assert code == 1
    assert isinstance(failed, Failed)
    assert f"{path} are damaged" in failed.cause
    assert "Remove that file" in failed.cause


@pytest.mark.parametrize("of_hub", [True, pytest.param(False, marks=pytest.mark.long)])
def test_stopped_download_leaves_nothing(serve: Callable[..., WeightsServer], of_hub: bool) -> None:
    server = serve("held")
    weights = HUB if of_hub else Weights(url=f"{server.address}/{NAME}")
    with process(weights) as child:
        assert server.holding.wait(120)
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=120)
    assert find_weights(weights).path == ""
    assert list_contents(hub_cache()) + list_contents(torch_cache()) == []
