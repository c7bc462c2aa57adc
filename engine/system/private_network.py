"""Network namespaces with a loopback interface that other users of the machine can't access (Linux only)."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import sys
from pathlib import Path
from typing import NoReturn

if sys.platform == "linux":
    import fcntl

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_CAPABILITY_VERSION_3 = 0x20080522
_NAMESPACES = {"user": _CLONE_NEWUSER, "net": _CLONE_NEWNET}


class PrivateNetwork:
    """Network that consists of a single loopback interface, for processes that enter it.

    As root, only a network namespace is created. Other users also need a user namespace that owns the network. In a user
    namespace, the ids of the user stay the same, and all other ids, including root's, appear as "nobody". The namespaces
    exist until `close` is called and the last process in them has exited. Creating them forks, so the process must not
    have other threads.

    Raises:
        OSError: The system does not support or allow such namespaces.
    """

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "only Linux has network namespaces")
        self._kinds = ("net",) if os.geteuid() == 0 else ("user", "net")
        parent_end, child_end = socket.socketpair()
        with parent_end, child_end:
            self._creator = os.fork()
            if self._creator == 0:
                _create_and_exit(self._kinds, child_end)
            child_end.close()
            error_number, self.descriptors, _, _ = socket.recv_fds(parent_end, 16, len(self._kinds))
        if len(self.descriptors) < len(self._kinds):
            self.close()
            number = int(error_number or errno.EIO)  # b"" if the child was killed
            raise OSError(number, os.strerror(number))

    def enter(self) -> None:
        """Move this process into the network. It must be a forked process with a single thread. Raises OSError."""
        for kind, descriptor in zip(self._kinds, self.descriptors, strict=True):
            _raise_on_error(_load_libc().setns(descriptor, _NAMESPACES[kind]))
            os.close(descriptor)
        if "user" in self._kinds:
            _drop_capabilities()

    def close(self) -> None:
        """Close the namespaces, and reap the process that created them, which has exited."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = []
        os.waitpid(self._creator, 0)


def _create_and_exit(kinds: tuple[str, ...], channel: socket.socket) -> NoReturn:
    """Create namespaces, send their file descriptors through `channel`, and exit. Called in a forked child.

    If this fails, the error number is sent instead. `kinds` are the kinds of namespaces, "user" or "net".
    """
    try:
        user, group = os.geteuid(), os.getegid()
        _raise_on_error(_load_libc().unshare(sum(_NAMESPACES[kind] for kind in kinds)))
        if "user" in kinds:
            Path("/proc/self/setgroups").write_text("deny")  # the kernel requires this before it maps the group
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        _start_loopback()
        descriptors = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in kinds]
        socket.send_fds(channel, [b"0"], descriptors)
    except OSError as error:
        channel.send(str(error.errno).encode())
    finally:
        os._exit(0)


def _start_loopback() -> None:
    """Start the loopback interface of this process's network. Raises OSError."""
    request = struct.pack("16sH22x", b"lo", _IFF_UP)  # struct ifreq of netdevice(7)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def _drop_capabilities() -> None:
    """Drop the capabilities that a user namespace gives to this process. No worker needs to administer a network."""
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITY_VERSION_3, 0))
    _raise_on_error(_load_libc().capset(header, ctypes.create_string_buffer(24)))


def _load_libc() -> ctypes.CDLL:
    """Return the C library, whose calls set the error number that `_raise_on_error` reads."""
    return ctypes.CDLL(None, use_errno=True)


def _raise_on_error(result: int) -> None:
    """Raise OSError with the number of libc's last error, unless the `result` of the call is 0."""
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
