"""The machines that the user has added: those that Monitor watches, and that runs may train on.

A device of such a machine is written "HOST:DEVICE", as in "node1:cpu" or "node1:GPU-…"; one of this machine has no
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
from engine.system.ssh import host_name_problem

SLURM = "slurm:"
"""How the names of the machines begin that SLURM has given a run, and that are in no list (see `contract.slurm`)."""
THIS = "."
"""How the terminal calls this machine, whose name in the list is ""."""
FIRST_PORT = 29400
"""The port at which the machines of a run meet where the list says nothing else; torchrun's own default."""
PORTS = 16
"""How many ports, from a machine's first on, one of which a run takes."""
_ADDRESS = re.compile(r"[0-9A-Fa-f:.]+")
_FOLDER = re.compile(r"[^\0\r\n]*")


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A machine. `destination` is what ssh is given, the name itself where it is empty; `folder` the virtual
    environment that Footplate is installed in there, "" where its command is found without; `address` the one that
    the other machines reach it by, "" for the one that ssh reaches; `gpus` how many it has, None where nobody has
    looked. `port` is the first of `PORTS`.
    """

    name: str
    destination: str = ""
    folder: str = ""
    address: str = ""
    gpus: int | None = None
    port: Annotated[int, Meta(ge=1024, le=65535 - PORTS)] = FIRST_PORT

    @property
    def title(self) -> str:
        return self.name.removeprefix(SLURM) or "this machine"

    @property
    def reached_by(self) -> str:
        """What ssh is given."""
        return self.destination or self.name

    def command(self, *arguments: str) -> list[str]:
        """The command that runs `footplate` there with `arguments`."""
        folder = self.folder.removeprefix("~/").rstrip("/")  # ssh begins in the home folder
        return [f"{folder}/bin/footplate" if folder else "footplate", *arguments]

    def problems(self) -> list[Problem]:
        """What is wrong with what the user has said of it."""
        found = []
        if self.name and (wrong := host_name_problem(self.name)):
            found.append(Problem("name", wrong, "Choose another name; --ssh says how it is reached."))
        if self.destination and (wrong := host_name_problem(self.destination)):
            found.append(Problem("ssh", wrong, "Name a host that `ssh HOST` reaches."))
        if self.address and not _ADDRESS.fullmatch(self.address):
            message = f"“{self.address}” is not an IP address."
            found.append(Problem("address", message, "Give the address of the interface to train over, as 10.0.0.7."))
        if not _FOLDER.fullmatch(self.folder) or (self.folder and not self.folder.startswith(("/", "~/"))):
            found.append(Problem("folder", "The folder must be a whole path.", "Begin it with / or ~/."))
        return found


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    host: tuple[Host, ...] = ()


def hosts() -> tuple[Host, ...]:
    """The machines in their order, this one among them if something is said of it; none where the list can't be
    read.
    """
    return read_hosts()[0]


def read_hosts() -> tuple[tuple[Host, ...], Problem | None]:
    """The machines, and why the list can't be read where it can't."""
    file = paths.home() / "hosts.toml"
    try:
        values: Any = tomllib.loads(file.read_text(encoding="utf-8"))
        found = msgspec.convert(values, _File).host
    except FileNotFoundError:
        return (), None
    except (OSError, ValueError, *NOT_DECODED) as error:
        return (), Problem("hosts", f"{file} can't be read: {error}.", "Correct or remove the file.")
    wrong = [problem for host in found for problem in host.problems()]
    if wrong:
        return (), Problem("hosts", f"{file}: {wrong[0].message}", "Correct or remove the file.")
    return found, None


def save_hosts(found: tuple[Host, ...]) -> None:
    """Writes the list. Raises OSError."""
    values = {"host": [msgspec.to_builtins(host) for host in found]}
    paths.write_atomically(paths.make_home() / "hosts.toml", tomli_w.dumps(values).encode())


def host(name: str) -> Host | None:
    """The machine of that name; this one where it is "", of which nothing need be said."""
    found = next((one for one in hosts() if one.name == name), None)
    return found or (Host(name="") if not name else None)


def put_host(new: Host) -> None:
    """Adds it, or puts it into the place of the one of its name. Raises OSError."""
    found = _readable()
    known = any(one.name == new.name for one in found)
    save_hosts(tuple(new if one.name == new.name else one for one in found) if known else (*found, new))


def remove_host(name: str) -> bool:
    """Removes it; False where there is none of that name. Raises OSError."""
    found = _readable()
    left = tuple(one for one in found if one.name != name)
    if len(left) < len(found):
        save_hosts(left)
    return len(left) < len(found)


def _readable() -> tuple[Host, ...]:
    """The machines, of a list that is about to be written anew."""
    found, problem = read_hosts()
    if problem is not None:
        raise OSError(str(problem))
    return found
