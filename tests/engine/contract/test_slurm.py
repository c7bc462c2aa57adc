"""Batch script and devices for a run under SLURM, and problems with its options."""

from __future__ import annotations

import pytest

from engine.contract.job import Job
from engine.contract.slurm import SlurmOptions, script_problems, time_limit_s
from engine.system.slurm import srun_command


def test_script_contains_only_the_chosen_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOOTPLATE_HOME", "/data/foot plate")
    options = SlurmOptions(
        partition="gpu",
        account="vision",
        time="8:00:00",
        nodes=2,
        gpus_per_node=4,
        cpus_per_task=16,
        setup=("module load cuda",),
    )
    assert options.problems() == SlurmOptions(time="5", gpus_per_node=0).problems() == []
    assert SlurmOptions(nodes=1000, gpus_per_node=64, cpus_per_task=4096).problems() == []
    lines = options.create_script("night shift $(reboot)").splitlines()
    assert lines[0] == "#!/bin/bash"
    assert [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")] == [
        "--job-name=night-shift-reboot", "--partition=gpu", "--account=vision", "--time=8:00:00", "--nodes=2", "--ntasks-per-node=1",
        "--gpus-per-node=4", "--cpus-per-task=16", "--output=slurm.log", "--open-mode=append", "--signal=B:USR1@90", "--requeue",
    ]  # fmt: skip
    assert lines.index("export FOOTPLATE_HOME='/data/foot plate'") < lines.index("module load cuda") < len(lines) - 1
    assert lines[-1] == "exec ${FOOTPLATE:-footplate} node --slurm ."
    assert script_problems("\n".join(lines)) == []
    plain = SlurmOptions(gpus_per_node=0).create_script("")
    assert not any(option in plain for option in ("--partition", "--account", "--time", "--gpus", "--cpus"))
    assert "--job-name=footplate" in plain


def test_slurm_problems_are_reported_together() -> None:
    options = SlurmOptions(
        partition="-x", account="a b", time="soon", nodes=0, gpus_per_node=-1, cpus_per_task=9999,
        setup=("module load cuda\nreboot", "#SBATCH --uid=0", " -x", " "), host="-oProxyCommand=reboot",
    )  # fmt: skip
    flags = [problem.field for problem in options.problems()]
    assert flags == [
        "--partition", "--account", "--time", "--nodes", "--gpus-per-node", "--cpus-per-task", *["--setup"] * 4, "--slurm-host",
    ]  # fmt: skip
    assert all(problem.remedy for problem in options.problems())
    partition, time = SlurmOptions(partition="gpu\n#SBATCH --uid=0", time="4:59").problems()
    assert (partition.field, time.field, time.remedy) == ("--partition", "--time", "Request at least 5 minutes.")
    assert "the last 90 s" in time.message
    assert len(script_problems("exec footplate\0")) == 3
    assert len(script_problems("#!/bin/bash\n  # footplate node --slurm .")) == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("90:30", 5430),
        ("8:00:00", 28800),
        ("2-12", 216000),
        ("1-0:30", 88200),
        ("1-1:1:1", 90061),
        ("", None),
        ("1-", None),
        ("8h", None),
    ],
)
def test_time_limit_s_reads_sbatch_formats(text: str, seconds: int | None) -> None:
    assert time_limit_s(text) == seconds


def test_slurm_job_has_the_requested_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    job = SlurmOptions(nodes=2, gpus_per_node=2).create_job(Job.from_fields(dataset="/data", devices=("cpu",)))
    assert job.parallel.devices == ("slurm:1:gpu0", "slurm:1:gpu1", "slurm:2:gpu0", "slurm:2:gpu1")
    assert (job.data.dataset, job.faults.start) == ("/data", "at_once")
    assert SlurmOptions(nodes=2, gpus_per_node=0).create_job(job).parallel.devices == ("slurm:1:cpu", "slurm:2:cpu")
    monkeypatch.setenv("FOOTPLATE", "apptainer exec --nv 'my image.sif' footplate")
    command = srun_command("n2", ["node"])
    assert command[0] == "srun"
    assert command[-6:] == ["--nodelist=n2", "apptainer", "exec", "--nv", "my image.sif", "footplate", "node"][-6:]
