"""SLURM on one machine: Debian's munged, slurmctld and two slurmd for the nodes n1 and n2, all in one folder.

Jobs of the partition "high" preempt those of the partition "low". A preempted job gets its warning signal, and is put
back into SLURM's queue.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from tests.support.machines import ROOT
from tests.support.waiting import wait_until

NODES = ("n1", "n2")
_START_S = 30.0
_TOOLS = (
    "munged",
    "slurmctld",
    "slurmd",
    "sbatch",
    "srun",
    "scontrol",
    "squeue",
    "scancel",
    "unshare",
    "sshd",
    "ssh",
    "ssh-keygen",
)
_PASSED_VARIABLES = ("PATH", "SLURM_CONF", "XDG_RUNTIME_DIR", "FOOTPLATE_CACHE", "PYTHONPATH", "OMP_NUM_THREADS")
_CONF = """ClusterName=footplate
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthInfo=socket={folder}/munge.sock
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
ReturnToService=2
KillWait=10
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2
PartitionName=low Nodes=n1,n2 Default=YES PriorityTier=1 GraceTime=60 MaxTime=INFINITE State=UP
PartitionName=high Nodes=n1,n2 PriorityTier=10 MaxTime=INFINITE State=UP
"""


def find_obstacle() -> str:
    """Return the reason why SLURM can't run on this system, or "" if it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "needs Linux and root, for SLURM's daemons"
    missing = [tool for tool in _TOOLS if not shutil.which(tool, path=_path())]
    if missing:
        return f"needs {', '.join(missing)} (apt-get install --no-install-recommends slurmctld slurmd slurm-client munge openssh-server)"
    return ""


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


class Slurm:
    """Running SLURM installation with a login node, which is reached by `ssh login`. `close` stops it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(mode=0o700)
        (folder / "runtime").mkdir(mode=0o700)
        (folder / "state").mkdir()
        (folder / "bin").mkdir()
        self._daemons: list[subprocess.Popen[bytes]] = []
        for name, command in (
            ("footplate", f"{sys.executable} -m footplate"),
            ("ssh", f"/usr/bin/ssh -F {folder}/ssh"),
        ):
            (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (folder / "bin" / name).chmod(0o700)
        key = folder / "munge.key"
        key.write_bytes(os.urandom(64))
        key.chmod(0o400)
        folder.chmod(0o711)  # munged rejects folders that others can write to
        (folder / "slurm.conf").write_text(
            _CONF.format(host=socket.gethostname().partition(".")[0], folder=folder, ports=_find_free_ports(3))
        )
        try:
            self._start_all()
        except BaseException:
            self.close()
            raise

    def _start_all(self) -> None:
        munge = self.folder / "munge.sock"
        files = (f"--socket={munge}", f"--key-file={self.folder}/munge.key", f"--pid-file={self.folder}/munged.pid")
        self._start(
            "munged",
            "--force",
            "--foreground",
            *files,
            f"--seed-file={self.folder}/seed",
            f"--log-file={self.folder}/munged.log",
        )
        wait_until(munge.exists, "munged", _START_S)
        self._start("slurmctld", "-D", "-c")
        for node in NODES:
            (self.folder / f"spool-{node}").mkdir()
            self._start("slurmd", "-D", "-N", node, name=f"slurmd-{node}")
        wait_until(
            lambda: self.run("sinfo", "-h", "-N", "-o", "%T").split()[:2] == ["idle", "idle"],
            "the nodes",
            _START_S,
        )

        self._start_login()

    def _start_login(self) -> None:
        port = _find_free_ports(1)[0]
        for name in ("user", "host"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / f"{name}-key"], check=True
            )
        passed = " ".join(f'"{name}={self.environment()[name]}"' for name in _PASSED_VARIABLES)
        (self.folder / "sshd").write_text(
            f"AuthorizedKeysFile {self.folder}/user-key.pub\nHostKey {self.folder}/host-key\nStrictModes no\nUsePAM no\n"
            f"PidFile none\nListenAddress 127.0.0.1:{port}\nPermitRootLogin yes\nPasswordAuthentication no\nSetEnv {passed}\n"
        )
        key = (self.folder / "host-key.pub").read_text()
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {key}")
        (self.folder / "ssh").write_text(
            f"Host login\n  HostName 127.0.0.1\n  Port {port}\n  User root\n  IdentityFile {self.folder}/user-key\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {self.folder}/known_hosts\n"
        )
        Path("/run/sshd").mkdir(exist_ok=True)
        sshd = shutil.which("sshd", path=_path())
        assert sshd is not None
        self._start(sshd, "-D", "-e", "-f", str(self.folder / "sshd"), name="sshd")
        wait_until(
            lambda: self.run("ssh", "login", "squeue", "-h", "-o", "%i", "&&", "echo", "on") != "",
            "the login node",
            _START_S,
        )

    def _start(self, *command: str, name: str = "") -> None:
        with (self.folder / f"{name or command[0]}.out").open("wb") as log:
            self._daemons.append(
                subprocess.Popen(
                    command,
                    env=self.environment(),
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def environment(self) -> dict[str, str]:
        """Return the environment variables of the login node."""
        return {
            **os.environ,
            "PATH": f"{self.folder}/bin:{_path()}",
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "FOOTPLATE_HOME": str(self.home),
            "FOOTPLATE_CACHE": str(self.folder / "cache"),
            "XDG_RUNTIME_DIR": str(self.folder / "runtime"),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        }

    def run(self, *command: str) -> str:
        """Run a command on the login node and return its output, or "" if it fails."""
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True, check=False)
        return done.stdout if not done.returncode else ""

    def footplate(self, *arguments: str, elsewhere: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a Footplate command on the login node.

        If `elsewhere`, the command can't see the processes of this machine, as if it ran on another machine.
        """
        before = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child") if elsewhere else ()
        return subprocess.run(
            [*before, "footplate", *arguments],
            env=self.environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )

    def close(self) -> None:
        """Cancel all jobs and stop SLURM."""
        self.run("scancel", "--user=root")
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            try:
                daemon.wait(_START_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _find_free_ports(count: int) -> list[int]:
    """Return `count` free TCP ports."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports
