"""State of a form for the submit bar: whether and when the job can start, and its main choices."""

from __future__ import annotations

from collections.abc import Sequence

from engine.contract.devices import is_gpu
from engine.contract.job import Job
from engine.contract.problems import Problem, errors
from engine.runs.estimates import Estimate
from gui.dataset import dataset_format
from gui.form.cached_disk import CachedDisk
from gui.form.choices import FieldChoices
from gui.form.environment import JobEnvironment, format_device_list
from gui.form.fields import JobFields
from gui.form.inspection import Inspection
from gui.form.submit_bar import DATA, DEVICES, RECIPE, SubmitBar, describe_queue
from gui.format import counted, format_roughly, significant, size_of
from gui.sources.estimator import EstimateRequest
from gui.titles import strategy_title
from gui.translation import tr


def format_estimate(estimate: Estimate, devices: Sequence[str], memory_total_bytes: int | None) -> str:
    """Format an estimate, as in "Estimate: about 12 min on 2 GPUs, 9.0 of 48.0 GiB each".

    `memory_total_bytes` is the memory of a device, or None if it is unknown.
    """
    gpu_count = sum(map(is_gpu, devices))
    device_text = tr("the CPU")
    if gpu_count == 1:
        device_text = tr("1 GPU")
    elif gpu_count > 1:
        device_text = counted(gpu_count, "GPU")
    parts = []
    if estimate.seconds is not None:
        parts.append(tr("about {time} on {where}").format(time=format_roughly(estimate.seconds), where=device_text))
    if estimate.memory_bytes is not None:
        memory = size_of(estimate.memory_bytes, memory_total_bytes)
        if len(devices) > 1:
            memory = tr("{memory} each").format(memory=memory)
        parts.append(tr("at most {memory}").format(memory=memory) if estimate.is_upper_bound else memory)
    if estimate.seconds is None:
        parts.append(tr("time known after a first run"))
    return tr("Estimate: {parts}").format(parts=", ".join(parts))


def describe_estimate_basis(estimate: Estimate) -> str:
    """Describe what an estimate is based on, such as past runs."""
    origin = tr("Time from run {run_id}") if estimate.is_computed else tr("Time and memory from run {run_id}")
    lines = [origin.format(run_id=estimate.run_id)] if estimate.run_id else []
    if estimate.is_scaled:
        lines.append(tr("Scaled to the number of devices and the image size"))
    if estimate.is_computed:
        lines.append(tr("Memory computed from the model's layers"))
    return "\n".join(lines)


class Readiness:
    """Presenter that shows in the submit bar whether and when the job of a form can start."""

    def __init__(
        self,
        bar: SubmitBar,
        action_title: str,
        *,
        fields: JobFields,
        environment: JobEnvironment,
        choices: FieldChoices,
        inspection: Inspection,
        disk: CachedDisk,
    ) -> None:
        self._bar, self._fields, self._environment = bar, fields, environment
        self._choices, self._inspection, self._disk = choices, inspection, disk
        self._action_title = action_title

    def find_disabled_reason(self, problems: Sequence[Problem]) -> str:
        """Return the reason why a job with these problems can't be started, or "" if it can."""
        if self._environment.is_starting:
            return tr("Starting the run.")
        blocking = errors(problems)
        if self.lacks_dataset and all(problem.field == "dataset" for problem in blocking):
            return tr("Choose a dataset folder first.")
        if blocking:
            labels = dict.fromkeys(map(self._fields.find_label, blocking))
            return tr("Correct these fields to enable {action}: {labels}.").format(
                action=self._action_title, labels=", ".join(labels)
            )
        if self._disk.unanswered:
            return tr("Waiting for the disk: {unanswered}.").format(unanswered=self._disk.unanswered[0])
        return tr("The folder is still being inspected.") if self._inspection.is_inspecting else ""

    @property
    def lacks_dataset(self) -> bool:
        """Return True if no dataset folder is set. In a new job, this doesn't count as a mistake."""
        return not self._fields.rows["dataset"].value()

    def list_mistakes(self, problems: Sequence[Problem]) -> list[Problem]:
        """Return the problems that the form shows: all except the missing folder of a new job."""
        return [problem for problem in problems if not (self.lacks_dataset and problem.field == "dataset")]

    def show(self, problems: Sequence[Problem]) -> None:
        """Show in the submit bar whether a job with these problems can start."""
        reason = self.find_disabled_reason(problems)
        mistakes = self.list_mistakes(problems)
        # Problems that are shown nowhere else. Those with the devices are shown below the devices in the form.
        bar_problems = [
            problem for problem in mistakes if problem.field != "devices" and not self._fields.has_place_for(problem)
        ]
        if not bar_problems and errors(mistakes):
            bar_problems.append(Problem("", reason))  # which names the fields to correct
        self._bar.show_ready(reason, tuple(bar_problems))
        working = {DATA: tr("inspecting the folder…")} if self._inspection.is_inspecting else {}
        to_do = {DATA: tr("choose a folder")} if self.lacks_dataset else {}
        self._bar.steps.show_steps(mistakes, self._describe_steps(), working, to_do)
        self.show_queue()

    def show_queue(self) -> None:
        """Show which runs the job would wait for, in the submit bar.

        If there are any, offer to start it immediately.
        """
        environment, at_once = self._environment, self._fields.rows["start"].value() == "at_once"
        text = describe_queue(environment.queued, environment.devices, environment.device_names(), at_once)
        is_queued = bool(text) and not at_once
        self._bar.show_queue(text, can_start_at_once=is_queued)
        self._bar.show_action(
            tr("Add to queue") if is_queued and self._action_title == tr("Train") else self._action_title
        )

    def create_estimate_request(self, job: Job | None) -> EstimateRequest | None:
        """Create the request for an estimate of `job`, or return None if facts that it depends on are unknown.

        The facts are the job, the number of training images, the image size, and the hardware of the devices.
        """
        report, environment = self._inspection.report, self._environment
        if job is None or report is None or not report.format:
            return None
        entry, kinds = environment.catalogue.model(job.model.name), environment.device_kinds(job.parallel.devices)
        image_size = job.data.image_size or (entry.image_size if entry is not None else 0)
        counts = {split.name: split.images for split in report.splits}
        if not kinds or not image_size or not counts.get("train"):
            return None
        return EstimateRequest(job, image_size, kinds, (counts["train"], counts.get("val", 0)))

    def show_estimate(self, request: EstimateRequest | None, estimate: Estimate | None) -> None:
        """Show the estimated time and memory of the job in `request`. If `request` is None, show no estimate.

        If `estimate` is None, because no measured run is similar enough, show that there is no estimate yet.
        """
        if request is None:
            self._bar.show_estimate("", "")
        elif estimate is None:
            self._bar.show_estimate(
                tr("No estimate yet"), tr("A run of this model on such devices makes one possible.")
            )
        else:
            devices = request.job.parallel.devices
            total = self._environment.device_memory_bytes(devices)
            self._bar.show_estimate(format_estimate(estimate, devices, total), describe_estimate_basis(estimate))

    def describe_method(self) -> str:
        """Summarize task, recipe, learning rate and strategy, for the collapsed section "Recipe and strategy"."""
        rate = self._fields.rows["learning_rate"].value()
        parts = (
            self._fields.format_value("task"),
            self._fields.format_value("recipe") or tr("No recipe"),
            tr("learning rate {rate}").format(rate=significant(rate) if isinstance(rate, float) else rate),
            strategy_title(self._choices.resolved_strategy),
        )
        return " · ".join(parts)

    def _describe_steps(self) -> dict[str, str]:
        """Return a summary of the choices in each step, by the step's name.

        The steps are the dataset, the recipe with the model, and the devices with the strategy.
        """
        report, environment = self._inspection.report, self._environment
        dataset = self._inspection.card_text
        if report is not None and report.format:
            dataset = dataset_format.describe_size(report)
        devices = format_device_list(environment.devices, environment.device_names())
        return {
            DATA: dataset,
            RECIPE: f"{self._fields.format_value('recipe')} · {self._fields.format_value('model')}",
            DEVICES: f"{devices} · {strategy_title(self._choices.resolved_strategy)}",
        }
