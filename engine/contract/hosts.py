"""Machines that the user has added for monitoring and training.

A device on such a machine is written "HOST:DEVICE", as in "node1:cpu" or "node1:GPU-…". A device on this machine has no
host.
"""

from __future__ import annotations

import re
import tomllib
from typing import Annotated, Any

import msgspec
import tomli_w
from msgspec import Meta

from engine.contract.problems import Problem
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import read_file
from engine.system.ssh import host_name_problem

SLURM = "slurm:"
"""Prefix for the names of machines that SLURM has allocated to a run.

They are not in the user's list of machines (see `contract.slurm`).
"""
THIS = "."
"""Name of this machine on the command line. In the user's list of machines its name is ""."""
FIRST_PORT = 29400
"""Default port for the rendezvous between a run's machines, the same as in torchrun."""
PORTS = 16
"""Number of ports that runs may use, counted from the first port of a machine."""
_ADDRESS = re.compile(r"[0-9A-Fa-f:.]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=[^\0\r\n]*")
_FOLDER = re.compile(r"[^\0\r\n]*")


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Machine in the user's list.

    Attributes:
        destination: Argument for ssh, or "" to use the name.
        folder: Virtual environment with Footplate on that machine, or "" if the command is on its PATH.
        address: Address that the other machines connect to, or "" to use the one that ssh connects to.
        gpus: Number of GPUs, or None if unknown.
        port: First of the `PORTS` ports for rendezvous.
        environment: Environment variables for Footplate on that machine, as NAME=VALUE.
    """

    name: str
    destination: str = ""
    folder: str = ""
    address: str = ""
    gpus: int | None = None
    port: Annotated[int, Meta(ge=1024, le=65535 - PORTS)] = FIRST_PORT
    environment: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return self.name.removeprefix(SLURM) or "this machine"

    @property
    def ssh_destination(self) -> str:
        """Argument of ssh that names the machine: its destination or, if that is empty, its name."""
        return self.destination or self.name

    @property
    def environment_command(self) -> list[str]:
        """Start of a command line that sets the machine's environment variables with `env`, or [] if there are none."""
        return ["env", *self.environment] if self.environment else []

    def command(self, *arguments: str) -> list[str]:
        """Return the shell words that run `footplate` with these arguments on the machine."""
        folder = self.folder.removeprefix("~/").rstrip("/")  # ssh starts in the home folder
        return [*self.environment_command, f"{folder}/bin/footplate" if folder else "footplate", *arguments]

    def problems(self) -> list[Problem]:
        """Return the problems with the values that the user entered for this machine."""
        found = []
        if self.name and (wrong := host_name_problem(self.name)):
            found.append(Problem("name", wrong, "Choose another name; --ssh says how it is reached."))
        if self.destination and (wrong := host_name_problem(self.destination)):
            found.append(Problem("ssh", wrong, "Name a host that `ssh HOST` reaches."))
        if self.address and not _ADDRESS.fullmatch(self.address):
            message = f"“{self.address}” is not an IP address."
            found.append(Problem("address", message, "Give the address of the interface to train over, as 10.0.0.7."))
        if not _FOLDER.fullmatch(self.folder) or (self.folder and not self.folder.startswith(("/", "~/"))):
            found.append(Problem("folder", "The folder must be an absolute path.", "Begin it with / or ~/."))
        if wrong_ones := [each for each in self.environment if not _VARIABLE.fullmatch(each)]:
            message = f"“{wrong_ones[0]}” doesn't set an environment variable."
            found.append(Problem("environment", message, "Write NAME=VALUE, as NCCL_IB_DISABLE=1."))
        return found


class _HostsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of the user's hosts.toml: a table [[host]] for each machine."""

    host: tuple[Host, ...] = ()


def hosts() -> tuple[Host, ...]:
    """Return the machines in the user's list, in order, or () if the list can't be read.

    This machine is included if it has an entry.
    """
    return read_hosts()[0]


def read_hosts() -> tuple[tuple[Host, ...], Problem | None]:
    """Read the user's list of machines. If it can't be read or has an invalid entry, return () and a problem.

    A missing list is empty and causes no problem.
    """
    file = paths.home() / "hosts.toml"
    try:
        values: Any = tomllib.loads(read_file(file).decode())
        found = msgspec.convert(values, _HostsFile).host
    except FileNotFoundError:
        return (), None
    except (OSError, ValueError, *NOT_DECODED) as error:
        return (), Problem("hosts", f"{file} can't be read: {error}.", "Correct or remove the file.")
    wrong = [problem for host in found for problem in host.problems()]
    if wrong:
        return (), Problem("hosts", f"{file}: {wrong[0].message}", "Correct or remove the file.")
    return found, None


def save_hosts(machines: tuple[Host, ...]) -> None:
    """Write the user's list of machines. Raises OSError."""
    values = {"host": [msgspec.to_builtins(machine) for machine in machines]}
    paths.write_atomically(paths.make_home() / "hosts.toml", tomli_w.dumps(values).encode())


def host(name: str) -> Host | None:
    """Return the machine with this name, or None if there is none.

    The name "" means this machine, which needs no entry.
    """
    listed = next((each for each in hosts() if each.name == name), None)
    if listed is None and name == "":
        return Host(name="")
    return listed


def put_host(new: Host) -> None:
    """Add a machine to the user's list, or replace the one with the same name. Raises OSError."""
    machines = {each.name: each for each in _read_hosts_for_update()}
    machines[new.name] = new  # in the position of the replaced one, or at the end
    save_hosts(tuple(machines.values()))


def remove_host(name: str) -> bool:
    """Remove a machine from the user's list, or return False if there is none with this name. Raises OSError."""
    machines = _read_hosts_for_update()
    remaining = tuple(each for each in machines if each.name != name)
    is_listed = len(remaining) < len(machines)
    if is_listed:
        save_hosts(remaining)
    return is_listed


def _read_hosts_for_update() -> tuple[Host, ...]:
    """Read all machines in the list, so that it can be changed and written back.

    Raises OSError if the list can't be read, since it must not be overwritten in that case.
    """
    found, problem = read_hosts()
    if problem is not None:
        raise OSError(str(problem))
    return found
