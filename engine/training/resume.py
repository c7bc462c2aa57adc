"""Going on from the last.pt of another run, of whatever strategy."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.contract.events import Warned
from engine.contract.job import Job
from engine.strategies.base import Strategy
from engine.tasks.base import TaskError
from engine.training.optimizers import Updater
from engine.training.saving import Place, Saver

_FIELD = "resume_from"
_KEYS = {"model", "optimizer", "epoch", "done", "steps", "classes", "best", "best_epoch", "job"}


class Checkpoint:
    """The last.pt that a job goes on from.

    Reading it raises TaskError where it is no such file, or of another model, of other classes or of another
    optimizer than the job's. `plain` is the state of the job's model, `classes` those of its dataset.
    """

    def __init__(self, job: Job, classes: Sequence[str], plain: dict[str, Tensor]) -> None:
        self.path = Path(job.resume_from).expanduser()
        self._job = job
        self._content = _read(self.path)
        self._fits(classes, plain)

    @property
    def job(self) -> dict[str, Any]:
        """The fields of the job that it was trained by, with what that had left open decided."""
        fields: dict[str, Any] = self._content["job"]
        return fields

    def place(self, steps: int) -> Place:
        """Where the job goes on, with `steps` steps an epoch: after `done` steps of `epoch`.

        Data come in an order of their own in every epoch, given by the seed. Where that is not the order of the
        checkpoint's run any more, an epoch that it was in the middle of begins anew.
        """
        content = self._content
        epoch, done = content["epoch"], content["done"]
        if done == content["steps"]:
            epoch, done = epoch + 1, 0
        if not self._same_order(steps):
            done = 0
        return Place(epoch=epoch, done=done, steps=steps, step=(epoch - 1) * steps + done)

    def _same_order(self, steps: int) -> bool:
        before = self._content["job"]
        same = all(before.get(name) == getattr(self._job, name) for name in ("seed", "batch_size"))
        return same and self._content["steps"] == steps

    def remarks(self, steps: int) -> list[Warned]:
        """What the user should know of where the job goes on."""
        content, place = self._content, self.place(steps)
        if place.epoch > self._job.epochs:
            message = (
                f"{self.path} has {place.epoch - 1} epochs behind it, and the job asks for {self._job.epochs}: there is "
                "nothing left to train. Set more epochs to go on."
            )
            return [Warned(code="nothing_left", message=message)]
        if place.epoch == content["epoch"] and place.done < content["done"]:
            message = (
                f"Epoch {place.epoch} begins anew: {self.path} was written in its middle, by a run with another seed, "
                "batch size or number of pictures, and so another order of pictures."
            )
            return [Warned(code="epoch_anew", message=message)]
        return []

    def take_over(self, strategy: Strategy, updater: Updater, saver: Saver, steps: int) -> Place:
        """Gives the strategy, the updater and the saver what the checkpoint holds; where the job goes on.

        Its best epoch is taken over together with the best.pt next to it. All ranks call it together, once.
        """
        place = self.place(steps)
        copied = strategy.spec.rank == 0 and self._copy_best(saver.path("best"))
        if strategy.agree([int(copied)])[0]:
            saver.best, saver.best_epoch = self._content["best"], self._content["best_epoch"]
        if place.epoch <= strategy.spec.job.epochs:
            strategy.load_state_dict(self._content.pop("model"))
            # The place in the schedule is this job's, which may have more epochs or other batches.
            strategy.load_optimizer_state(updater, self._content.pop("optimizer") | {"schedule": None})
            updater.go_to(place.step, place.epoch - 1)
        return place

    def _copy_best(self, target: Path) -> bool:
        source = self.path.with_name("best.pt")
        if self._content["best_epoch"] is None:
            return False
        try:
            if not (target.exists() and source.samefile(target)):
                target.parent.mkdir(parents=True, exist_ok=True)
                temporary = target.with_name(".best.pt.part")
                shutil.copyfile(source, temporary)
                os.replace(temporary, target)
        except OSError:
            return False
        return True

    def _fits(self, classes: Sequence[str], plain: dict[str, Tensor]) -> None:
        before: dict[str, Any] = self._content["job"]
        if tuple(self._content["classes"]) != tuple(classes):
            message = (
                f"{self.path} was trained on {_listed(self._content['classes'])}; the dataset has {_listed(classes)}."
            )
            raise TaskError(_FIELD, message, "Choose that run's dataset, or leave “Continue from” empty.")
        state = self._content["model"]
        shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
        if shapes != {name: tuple(tensor.shape) for name, tensor in plain.items()}:
            model = before.get("model")
            other = f"a run of {model}" if model != self._job.model else f"another form of {model}"
            message = f"{self.path} comes from {other}, whose weights do not fit this job's {self._job.model}."
            raise TaskError(_FIELD, message, "Choose that run's model and image size, or leave “Continue from” empty.")
        if before.get("optimizer") != self._job.optimizer:
            message = (
                f"{self.path} was trained with the optimizer {before.get('optimizer')}, whose state is gone on from."
            )
            raise TaskError(_FIELD, message, f"Choose {before.get('optimizer')}, or leave “Continue from” empty.")


def _read(path: Path) -> dict[str, Any]:
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise TaskError(_FIELD, f"There is no file {path}.", "Check the spelling, or browse for it.") from None
    except OSError as error:
        raise TaskError(_FIELD, f"{path} cannot be read: {error.strerror}.", "Check the path.") from error
    except Exception as error:  # torch.load raises many things for what is no file of its own
        raise TaskError(_FIELD, f"{path} is not a checkpoint, or a damaged one.", "Give a run's last.pt.") from error
    if isinstance(content, dict) and content.keys() >= _KEYS:
        return content
    if isinstance(content, dict) and content and all(isinstance(value, Tensor) for value in content.values()):
        message = f"{path} holds weights alone, without the place in a training."
        raise TaskError(_FIELD, message, "Give a run's last.pt, or set it as the weights file.")
    raise TaskError(_FIELD, f"{path} is not a checkpoint of Footplate.", "Give a run's last.pt.")


def _listed(classes: Sequence[str]) -> str:
    named = ", ".join(classes[:3]) + (", …" if len(classes) > 3 else "")
    return f"{len(classes)} classes ({named})"
