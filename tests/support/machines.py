"""Machines on one host: network namespaces, each with an ssh server, host key, name, process tree and Footplate home.

They share a bridge without any other route. The head, on which tests run commands, has no ssh server.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from engine.contract.events import StepMetrics
from engine.runs.folder import RunFolder
from tests.support.scripts import write_script
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
_START_S = 20.0
_SSHD = "/usr/sbin/sshd"


def find_obstacle() -> str:
    """Return the reason why simulated machines can't be created on this system, or "" if they can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "needs Linux and root, for network namespaces"
    missing = [tool for tool in ("ip", "nsenter", "unshare", "ssh", "ssh-keygen", _SSHD) if not shutil.which(tool)]
    if missing:
        return f"needs {', '.join(missing)} (apt-get install openssh-server iproute2)"
    tried = subprocess.run(["ip", "netns", "add", "fptry"], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"network namespaces can't be made: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "delete", "fptry"], check=True)
    return ""


class Machines:
    """Simulated machines with the given names, and the head, a machine on which the tests run commands.

    The head has the address 10.77.0.10. The addresses of the others start at 10.77.0.11.
    """

    def __init__(self, folder: Path, names: tuple[str, ...] = ("node1", "node2")) -> None:
        self.names = names
        self.folder = folder
        self.home = folder / "head"
        self._mark = f"fp{os.getpid() % 100000}"
        self._switch = f"{self._mark}sw"
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self._wires: dict[str, subprocess.Popen[bytes]] = {}
        os.makedirs("/run/sshd", exist_ok=True)
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "br0", "up")
        self._keygen("user")
        for number, name in enumerate(("head", *names)):
            self._plug_in(name, number)
        self._write_commands()
        for name in names:
            self.boot(name)

    def space(self, name: str) -> str:
        return f"{self._mark}{'h' if name == 'head' else self.names.index(name)}"

    def address(self, name: str) -> str:
        return f"10.77.0.{10 if name == 'head' else 11 + self.names.index(name)}"

    def home_of(self, name: str) -> Path:
        return self.folder / name

    # Running commands

    def environment(self) -> dict[str, str]:
        """Return the environment for commands on the head."""
        return {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "FOOTPLATE_HOME": str(self.home),
            "FOOTPLATE_CACHE": str(self.folder / "cache"),
            "XDG_RUNTIME_DIR": str(self._runtime("head")),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        }

    def footplate(self, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Run a Footplate command on the head."""
        return subprocess.run(
            self._on_head(*arguments),
            env=self.environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def run_trainings(self, *runs: Sequence[str]) -> list[RunFolder]:
        """Run `footplate train` on the head once per argument list, all at the same time, and return the finished runs.

        Raises:
            SystemExit: A training fails. The message contains the output of all trainings.
        """
        running = [self.start("train", *arguments) for arguments in runs]
        outputs = [each.communicate(timeout=900)[0] for each in running]
        if any(each.returncode for each in running):
            raise SystemExit("\n".join(outputs))
        return [RunFolder(folder) for folder in sorted((self.home / "runs").iterdir())[-len(runs) :]]

    def measure_payload_rate(self, nbytes: int) -> float:
        """Measure the network speed between the first two machines, in bits per second and direction.

        Both machines send `nbytes` to each other over TCP at the same time, nine times. The result is the speed of
        the slower machine.
        """
        arguments = (self.address(self.names[0]), str(nbytes), "9")
        script = str(Path(__file__).parent / "sending.py")
        with ThreadPoolExecutor() as pool:
            pending = [
                pool.submit(_in, self.space(name), sys.executable, script, *arguments, *last)
                for name, last in zip(self.names[:2], (("--first",), ()), strict=True)
            ]
            return min(float(each.result()) for each in pending)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._on_head(*arguments),
            env=self.environment(),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def start_on(self, name: str, line: str) -> subprocess.Popen[str]:
        """Start a shell command on a machine through ssh from the head."""
        return subprocess.Popen(
            ["ip", "netns", "exec", self.space("head"), str(self.folder / "bin/ssh"), name, line],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _on_head(self, *arguments: str) -> list[str]:
        return ["ip", "netns", "exec", self.space("head"), "footplate", *arguments]

    def find_processes(self, name: str) -> list[psutil.Process]:
        """Return the running Python processes on a machine."""
        found = []
        for pid in _ip("netns", "pids", self.space(name)).split():
            try:
                process = psutil.Process(int(pid))
                if process.status() != psutil.STATUS_ZOMBIE and any(
                    "python" in argument for argument in process.cmdline()[:1]
                ):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def find_listening_addresses(self, name: str) -> set[str]:
        """Return the TCP addresses on which a machine listens, except the one of its ssh server."""
        lines = _in(self.space(name), "ss", "-Hltn").splitlines()
        return {line.split()[3] for line in lines if not line.split()[3].endswith(":22")}

    # Faults

    def boot(self, name: str, *, over: tuple[Path, Path] | None = None, **variables: str) -> None:
        """Start a machine, and wait until its ssh server accepts connections.

        `variables` are added to the environment of ssh sessions. `over` is a pair of folders (source, target): the
        source is mounted over the target, on this machine only.
        """
        config = self.folder / f"sshd-{name}"
        set_there = {
            "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin",
            "FOOTPLATE_HOME": str(self.home_of(name)),
            "FOOTPLATE_CACHE": str(self.folder / "cache"),
            "XDG_RUNTIME_DIR": str(self._runtime(name)),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        } | variables
        config.write_text(
            f"AuthorizedKeysFile {self.folder}/user.pub\nHostKey {self.folder}/{name}-key\nStrictModes no\nUsePAM no\n"
            f"PidFile none\nListenAddress {self.address(name)}\nPermitRootLogin yes\nPasswordAuthentication no\n"
            "SetEnv " + " ".join(f'"{key}={value}"' for key, value in set_there.items()) + "\n"
        )
        mounts = [(self.folder / "hosts", Path("/etc/hosts")), *([over] if over else [])]
        startup_file = Path.home() / ".bashrc"
        if startup_file.exists():  # killed in it, pyenv's setup leaves a lock that later logins wait for
            mounts.append((Path(os.devnull), startup_file))
        mounting = "".join(f"mount --bind {source} {target}; " for source, target in mounts)
        script = f"hostname {name}; {mounting}exec {_SSHD} -D -e -f {config}"
        with (self.folder / f"sshd-{name}.log").open("ab") as log:
            self._servers[name] = subprocess.Popen(
                ["nsenter", f"--net=/run/netns/{self.space(name)}", "unshare", "--uts", "--ipc", "--pid", "--mount",
                 "--fork", "--mount-proc", "--kill-child", "sh", "-c", script],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env={"PATH": os.environ["PATH"]},  # the process outlives the test
            )  # fmt: skip
        wait_until(
            lambda: f"{self.address(name)}:22" in _in(self.space(name), "ss", "-Hltn"), f"sshd of {name}", _START_S
        )

    def power_off(self, name: str) -> None:
        """Disconnect a machine from the network, kill all its processes, and wait until they have ended."""
        self.unplug(name)
        self._servers[name].kill()
        self._servers[name].wait()
        for pid in _ip("netns", "pids", self.space(name)).split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue
        wait_until(lambda: not _ip("netns", "pids", self.space(name)).split(), f"{name} to be off", _START_S)

    def unplug(self, name: str) -> None:
        _ip("-n", self._switch, "link", "set", self._get_interface(name), "nomaster")

    def plug_in(self, name: str) -> None:
        _ip("-n", self._switch, "link", "set", self._get_interface(name), "master", "br0")

    def block_traffic(self, name: str, other: str) -> None:
        """Block all traffic from machine `name` to machine `other`."""
        _ip("-n", self.space(name), "route", "add", "prohibit", f"{self.address(other)}/32")

    def block_ephemeral_ports(self, name: str) -> None:
        """Drop the TCP packets that a machine sends to ephemeral ports.

        Packets from its ssh port and from the ports of Footplate's runs still pass.
        """
        rules = (
            ("sport", "22", "lookup", "main"),
            ("sport", "29400-29415", "lookup", "main"),
            ("dport", "32768-60999", "blackhole"),
        )
        for preference, rule in enumerate(rules, 10):
            _ip("-n", self.space(name), "rule", "add", "pref", str(preference), "ipproto", "tcp", *rule)

    def unblock_ports(self, name: str) -> None:
        for preference in range(10, 13):
            _ip("-n", self.space(name), "rule", "delete", "pref", str(preference))

    def unblock_traffic(self, name: str, other: str) -> None:
        _ip("-n", self.space(name), "route", "delete", "prohibit", f"{self.address(other)}/32")

    def reboot(self, name: str, **how: Any) -> None:
        self.power_off(name)
        self.plug_in(name)
        self.boot(name, **how)

    def limit_network(self, mbits: float, delay_s: float) -> None:
        """Limit the network of every machine to `mbits` Mbit/s and delay its packets by `delay_s` seconds.

        This requires a C compiler.
        """
        self.remove_network_limits()
        program = self.folder / "slow_wire"
        if not program.exists():
            source = Path(__file__).parent / "slow_wire.c"
            subprocess.run(["cc", "-O2", "-Wall", "-o", str(program), str(source)], check=True)
        for name in self.names:
            space = self.space(name)
            _ip("-n", self._switch, "link", "add", f"w{space}", "type", "veth", "peer", "name", f"x{space}")
            _ip("-n", self._switch, "link", "set", f"w{space}", "up")
            self.unplug(name)
            wire = subprocess.Popen(
                ["ip", "netns", "exec", self._switch, str(program), f"v{space}", f"w{space}", f"{mbits * 1e6:.0f}",
                 f"{delay_s * 1e9:.0f}"],
                stdout=subprocess.PIPE,
            )  # fmt: skip
            assert wire.stdout is not None
            assert wire.stdout.readline() == b"ready\n"
            self._wires[name] = wire
            self.plug_in(name)
            _ip("-n", self._switch, "link", "set", f"x{space}", "up")

    def remove_network_limits(self) -> None:
        """Remove the limits that `limit_network` set."""
        for name, wire in self._wires.items():
            with wire:
                wire.kill()
            _ip("-n", self._switch, "link", "delete", f"w{self.space(name)}")
        while self._wires:
            self.plug_in(self._wires.popitem()[0])

    def _get_interface(self, name: str) -> str:
        """Return the name of the network interface that connects a machine to the bridge."""
        return f"{'x' if name in self._wires else 'v'}{self.space(name)}"

    def close(self) -> None:
        self.remove_network_limits()
        for name in (*self.names, "head"):
            for pid in _ip("netns", "pids", self.space(name)).split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    continue
        for server in self._servers.values():
            server.kill()
            server.wait()
        for space in (*map(self.space, (*self.names, "head")), self._switch):
            wait_until(
                lambda space=space: not _ip("netns", "pids", space).split(),  # type: ignore[misc]
                f"the end of processes in {space}",
                _START_S,
            )
            _ip("netns", "delete", space)
        for name in ("head", *self.names):
            shutil.rmtree(self._runtime(name), ignore_errors=True)

    # Construction

    def _runtime(self, name: str) -> Path:
        folder = Path(f"/tmp/{self.space(name)}")
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def _keygen(self, name: str) -> None:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)], check=True)

    def _plug_in(self, name: str, number: int) -> None:
        space = self.space(name)
        _ip("netns", "add", space)
        _ip("-n", self._switch, "link", "add", f"v{space}", "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("-n", self._switch, "link", "set", f"v{space}", "master", "br0", "up")
        _ip("-n", space, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        _ip("-n", space, "link", "set", "lo", "up")
        self.home_of(name).mkdir(mode=0o700)
        if number:
            self._keygen(f"{name}-key")

    def _write_commands(self) -> None:
        """Write the commands of the head: `footplate`, `torchrun`, and an `ssh` with a separate configuration.

        A changed HOME would have no effect, because ssh reads the home folder from the system's list of users.
        """
        folder = self.folder / "bin"
        folder.mkdir()
        known = [f"{self.address(name)} {(self.folder / f'{name}-key.pub').read_text()}" for name in self.names]
        (self.folder / "known_hosts").write_text("".join(known))
        hosts = "".join(f"Host {name}\n  HostName {self.address(name)}\n" for name in self.names)
        (self.folder / "config").write_text(
            f"{hosts}Host *\n  User root\n  IdentityFile {self.folder}/user\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.folder}/known_hosts\n"
        )
        names = [f"{self.address(name)} {name}\n" for name in self.names]
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(names))
        write_script(folder / "ssh", f'exec /usr/bin/ssh -F {self.folder}/config "$@"')
        write_script(folder / "footplate", f'exec {sys.executable} {ROOT}/footplate.py "$@"')
        write_script(folder / "torchrun", f'exec {sys.executable} -m torch.distributed.run "$@"')


def measure_step_s(run: RunFolder, warm: int) -> float:
    """Return the mean seconds per step of a run, ignoring the first `warm` steps."""
    steps = [event for event in run.events() if isinstance(event, StepMetrics) and event.step > warm]
    return (steps[-1].time - steps[0].time) / (steps[-1].step - steps[0].step)


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True).stdout


def _in(space: str, *command: str) -> str:
    return subprocess.run(["ip", "netns", "exec", space, *command], capture_output=True, text=True, check=True).stdout
