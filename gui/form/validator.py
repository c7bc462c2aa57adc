"""Validation of the job in a form."""

from __future__ import annotations

import os
from typing import Any

from engine.checks import job_checks
from engine.checks.disk import ModelFile
from engine.checks.gpu_checks import gpu_problems
from engine.checks.machine_findings import cpu_warnings
from engine.checks.weights_checks import describe_weights
from engine.contract.devices import host_of
from engine.contract.job import Job, job_from_values
from engine.contract.problems import Problem
from gui.form.cached_disk import CachedDisk
from gui.form.environment import JobEnvironment
from gui.form.inspection import Inspection
from gui.form.recipes import RecipeFollower
from gui.format import size
from gui.sources.resume_fork import Prefill
from gui.translation import tr


class JobValidator:
    """Validator that builds a job from the values in a form, and finds its problems."""

    def __init__(
        self,
        environment: JobEnvironment,
        disk: CachedDisk,
        inspection: Inspection,
        recipes: RecipeFollower,
        prefill: Prefill | None,
    ) -> None:
        self.trusted_sha256 = ""
        """Hash of the model file's contents that the job contains or the user has allowed."""
        self.weights_note = ""
        """Sentence about the pretrained weights of the last validated job."""
        self._environment, self._disk = environment, disk
        self._inspection, self._recipes, self._prefill = inspection, recipes, prefill

    def validate(self, values: dict[str, Any]) -> tuple[Job | None, list[Problem]]:
        """Return the job (None if a value is invalid) and all problems.

        Invalid values don't hide the problems with other fields.
        """
        job, problems = job_from_values(values)
        invalid_fields = {problem.field for problem in problems}
        valid_job = job  # with defaults in place of invalid values
        if valid_job is None:
            valid_job, _problems = job_from_values(
                {name: value for name, value in values.items() if name not in invalid_fields}
            )
        if valid_job is not None:
            check_problems = self._find_problems(valid_job, values)
            problems = [*problems, *(problem for problem in check_problems if problem.field not in invalid_fields)]
        return job, list(problems)

    def model_file(self, model: str) -> ModelFile | None:
        """Return the facts about the Python file `model`.

        Return None if they are unknown, or if `model` isn't a Python file.
        """
        return self._disk.model_file(model) if model.endswith(".py") else None

    def model_file_sha256(self, model: str) -> str:
        """Return the SHA-256 of the contents of the model file `model` that the user has allowed to run.

        Returns "" if the user has allowed none, or if `model` isn't a file.
        """
        if not model.endswith(".py"):
            return ""
        file = self.model_file(model)
        agreed_sha256 = file.sha256 if file is not None and file.agreed else None
        return self.trusted_sha256 or agreed_sha256 or ""

    def _find_problems(self, job: Job, values: dict[str, Any]) -> list[Problem]:
        """Collect all problems with a job's values, GPUs and hosts and with resuming a run, and its devices' alerts.

        Also sets `weights_note`, the sentence about the job's pretrained weights.
        """
        environment, prefill, report = self._environment, self._prefill, self._inspection.report
        machine, torch, catalogue = environment.machine, environment.torch, environment.catalogue
        if prefill is not None:
            job = prefill.job_to_validate(job)
        problems = job_checks.problems(job, catalogue, machine, report, self._disk, chosen=self._recipes.user_edited)
        problems += gpu_problems(job, machine, torch, os.environ)
        problems += self._find_unreachable_hosts(job)
        warnings = environment.device_warnings
        problems += [problem for device in dict.fromkeys(job.parallel.devices) for problem in warnings.get(device, ())]
        if machine is not None:
            # The devices panel shows the selection, so that the CPU counts as the user's choice.
            problems += cpu_warnings(job, machine, torch, os.environ, chosen=True)
        if prefill is not None and prefill.run is not None:
            problems += prefill.problems(values, self._disk.resumable_run(prefill.run))
        self.weights_note = describe_weights(job, catalogue, self._disk, in_words=size)
        return problems

    def _find_unreachable_hosts(self, job: Job) -> list[Problem]:
        """Return an error for each host of the job's devices that can't be reached."""
        problems, hosts = self._environment.host_problems, dict.fromkeys(map(host_of, job.parallel.devices))
        return [
            Problem("devices", problems[host], tr("Until then, uncheck its devices."))
            for host in hosts
            if host in problems
        ]
