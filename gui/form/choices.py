"""Choices of the form's fields, which depend on other fields, on the devices and on plug-ins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from engine.checks.disk import ModelFile
from engine.contract.catalogue import Catalogue, DeviceKind
from engine.contract.devices import host_of, is_gpu
from engine.contract.idle_fields import DECISIVE, find_idle_fields
from engine.contract.job import AUTO_STRATEGY, FIELDS, resolve_strategy
from engine.system.format import listed
from gui.form.editors import ModelPicker
from gui.form.environment import JobEnvironment, list_device_texts
from gui.form.field_factory import OptionRows, list_choices, list_metric_choices
from gui.form.field_row import FieldRow
from gui.form.followers import ModelFollower
from gui.titles import CHOICES, strategy_title
from gui.translation import tr
from gui.widgets.editors import ChoiceEditor, IntEditor


class FieldChoices:
    """Updater that offers the models, metrics, losses, options and strategies that suit the other fields of a form."""

    def __init__(
        self,
        rows: Mapping[str, FieldRow],
        options: OptionRows,
        environment: JobEnvironment,
        models: ModelFollower,
        model_file: Callable[[str], ModelFile | None],
    ) -> None:
        """Connect the fields on which choices depend, and update all choices.

        Args:
            rows: Rows of the form's fields, by field name.
            options: Rows of the options of the selected task, model and strategy.
            environment: Facts outside of the form, such as the catalogue and the devices.
            models: Updater of the model that suits the task, which selects the default model.
            model_file: Function that returns the facts about the model file at a path, or None until they are known.
        """
        self._rows, self._options, self._environment = rows, options, environment
        self._models, self._model_file = models, model_file
        for name in DECISIVE:  # fields that decide whether others have an effect
            rows[name].edited.connect(self.show_effects)
        for names, update in (
            (("task",), self.update_models),
            (("task",), self.update_losses),
            (("task", "model"), self.update_metrics),
            (("model",), self._show_default_image_size),
            (("task", "model", "strategy"), self.update_options),
        ):
            for name in names:
                rows[name].edited.connect(update)
        self.update_models()
        self.update_metrics()
        self.update_losses()
        self.update_options()
        self.show_effects()

    def update_all(self) -> None:
        """Offer all choices again, because plug-ins have added entries to the catalogue."""
        for name in ("task", "strategy"):
            self._choice_editor(name).set_choices(list_choices(FIELDS[name], self._environment.catalogue))
        self.update_models()
        self.update_losses()
        self.update_metrics()
        self.update_options()

    def update_models(self) -> None:
        """Offer the models of the task. A model of another task is replaced by the default.

        An image size that is too small for the new model is reset.
        """
        catalogue, editor = self._environment.catalogue, self._rows["model"].editor
        task = catalogue.task(self._text("task"))
        assert isinstance(editor, ModelPicker)
        if task is None:
            return
        offered = catalogue.models_of(task.id)
        editor.set_models(offered, [default.model for default in task.defaults], of_file=task.file)
        chosen = catalogue.model(editor.value())
        if chosen is not None and chosen not in offered:
            self._models.select_default(self._environment.devices)
            size_row, model = self._rows["image_size"], catalogue.model(editor.value())
            image_size = size_row.value()
            if model is not None and image_size and image_size < model.min_image_size:
                size_row.set_value(None)  # it was chosen for another model

    def _show_default_image_size(self) -> None:
        """Show the model's image size in the empty image size field, as in "auto (224)"."""
        entry, editor = self._environment.catalogue.model(self._text("model")), self._rows["image_size"].editor
        assert isinstance(editor, IntEditor)
        size = entry.image_size if entry is not None else 0
        editor.set_empty(tr("auto ({size})").format(size=size) if size else tr("auto"))

    def update_metrics(self) -> None:
        """Offer the metrics that can select the best checkpoint. A metric of another task is reset."""
        row, task = self._rows["best_by"], self._environment.catalogue.task(self._text("task"))
        file = self._model_file(self._text("model")) if task is not None and task.file else None
        choices = list_metric_choices(self._environment.catalogue, task, file.measures if file is not None else ())
        # The metrics of a Python file are unknown until it has been read.
        has_known_metrics = task is not None and not task.file
        if has_known_metrics and row.editor_value() not in {value for value, _title, _help in choices}:
            row.set_value("")
        self._choice_editor("best_by").set_choices(choices)

    def update_losses(self) -> None:
        """Offer the losses of the task. A loss of another task is reset."""
        row, task = self._rows["loss"], self._environment.catalogue.task(self._text("task"))
        if task is None or not task.losses:
            return
        if row.editor_value() not in task.losses:
            row.set_value(task.losses[0])
        self._choice_editor("loss").set_choices([(value, CHOICES[value], "") for value in task.losses])

    def update_options(self) -> None:
        """Show the options that the selected task, model and strategy have."""
        catalogue = self._environment.catalogue
        options = catalogue.options_of(self._text("task"), self._text("model"), self.resolved_strategy)
        self._options.offer(options, catalogue)

    def update_strategies(self) -> None:
        """Mark strategies that can't be used with the devices or the model, and describe the selected one in the note.

        Strategies that can't run on the kinds of these devices (CPU or GPU) can't be selected.
        """
        catalogue, devices = self._environment.catalogue, self._environment.devices
        editor, limits = self._choice_editor("strategy"), find_strategy_limits(catalogue, devices, self._text("model"))
        editor.set_marks(limits, off=find_device_limits(catalogue, devices))
        if editor.value() == AUTO_STRATEGY:
            texts = list_device_texts(devices, self._environment.device_names())
            note = (
                tr("{strategy} on {devices}").format(
                    strategy=strategy_title(self.resolved_strategy), devices=listed(texts)
                )
                if texts
                else ""
            )
        else:
            entry = catalogue.strategy(editor.value())
            note = entry.summary if entry is not None else ""
        self._rows["strategy"].set_note(note)

    def show_effects(self) -> None:
        """Show the fields that have an effect for the job, and hide the others."""
        values = {name: self._rows[name].editor_value() for name in DECISIVE}
        idle = find_idle_fields({**values, "devices": self._environment.devices}, self._environment.catalogue)
        for name, row in self._rows.items():
            row.set_effect(name not in idle)

    @property
    def resolved_strategy(self) -> str:
        """Id of the strategy that the job would use on the checked devices."""
        return resolve_strategy(self._text("strategy"), self._environment.devices)

    def _text(self, name: str) -> str:
        return str(self._rows[name].value())

    def _choice_editor(self, name: str) -> ChoiceEditor:
        return cast("ChoiceEditor", self._rows[name].editor)


def find_device_limits(catalogue: Catalogue, devices: Sequence[str]) -> dict[str, str]:
    """Return the reasons why strategies can't run on the kinds of `devices` (CPU or GPU), by strategy id."""
    kinds: set[DeviceKind] = {"cuda" if is_gpu(device) else "cpu" for device in devices}
    return {
        entry.id: tr("CUDA GPUs only") if entry.device_kinds == ("cuda",) else tr("CPU only")
        for entry in catalogue.strategies
        if not kinds <= set(entry.device_kinds)
    }


def find_strategy_limits(catalogue: Catalogue, devices: Sequence[str], model: str) -> dict[str, str]:
    """Return the reasons why strategies can't be used with the devices or the model, by strategy id."""
    limits = {}
    entry = catalogue.model(model)
    for strategy in catalogue.strategies:
        if strategy.max_devices is not None and len(devices) > strategy.max_devices:
            limits[strategy.id] = tr("one device only")
        elif strategy.splits_model and entry is not None and entry.unsplittable_reason:
            limits[strategy.id] = tr("{model} can't be split into stages").format(model=entry.title)
        elif strategy.splits_layers and entry is not None and not entry.tensor_parallel:
            limits[strategy.id] = tr("{model} can't be split across devices").format(model=entry.title)
        elif not strategy.process_per_device and len(set(map(host_of, devices))) > 1:
            limits[strategy.id] = tr("one machine only")
        elif len(devices) < strategy.min_devices:
            limits[strategy.id] = tr("needs {count} devices").format(count=strategy.min_devices)
    return limits | find_device_limits(catalogue, devices)
