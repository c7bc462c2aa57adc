"""Output of ``footplate convert``, and cleanup after failed or interrupted conversions."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from engine.contract.inference.conversion import ConvertRequest
from engine.contract.inference.messages import INFERENCE
from engine.contract.messages import Progress
from tests.engine.cli.terminal import ROOT, command, footplate
from tests.support.trained_runs import TrainedRun

Trainer = Callable[[str], TrainedRun]


@pytest.mark.long
def test_convert_writes_weights(trained: Trainer, tmp_path: Path) -> None:
    run = str(trained("classification").run.path)
    out = tmp_path / "out"
    answer = footplate("convert", run, "--to", "safetensors", "--out", str(out), "--json")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["out"] == str(out)
    assert (out / "model.safetensors").is_file()
    answer = footplate("convert", run, "--to", "onnx", "--out", str(out), "--opset", "3")
    assert answer.code == 2
    assert "Opset 3 can't be written." in answer.err
    assert "other files" in answer.err


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits on files")
@pytest.mark.long
def test_full_disk_leaves_nothing(trained: Trainer, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = command("convert", str(trained("classification").run.path), "--to", "safetensors", "--out", str(out))
    limit = 1 << 20  # the weights need more space

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False, preexec_fn=limited)
    assert done.returncode == 2
    assert f"{out} was not written: File too large" in done.stderr
    assert not [path for path in tmp_path.iterdir() if path.name.startswith((".out", "out"))]


@pytest.mark.long
def test_interrupted_conversion_leaves_nothing(trained: Trainer, tmp_path: Path) -> None:
    out = tmp_path / "out"
    request = ConvertRequest(run=str(trained("classification").run.path), to=("onnx",), out=str(out))
    arguments = [sys.executable, "-m", "engine.inference"]
    with subprocess.Popen(arguments, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(request))
        process.stdin.close()
        for line in process.stdout:
            message = INFERENCE.decode(line)
            assert isinstance(message, Progress), message
            if message.what == "Exporting to ONNX":
                assert [path.name.startswith(".out.") for path in tmp_path.iterdir() if "part" in path.name] == [True]
                process.send_signal(signal.SIGTERM)
        assert process.wait() == 130
    assert not [path for path in tmp_path.iterdir() if path.name.startswith((".out", "out"))]
