"""Random messages from hostile clients: invalid, with wrong types, too long, too deep, or in pieces."""

from __future__ import annotations

import os
import random
import socket
import struct
from collections.abc import Callable

from engine.contract.protocol import ENCODE, MAX_COMMAND_BYTES, Adjust, CheckpointNow, Hello
from tests.attacks.structures import damage_text

HELLO = ENCODE.encode(Hello()) + b"\n"
# No message that ends the run.
_MESSAGES = (Hello(), Hello(from_n=3, token="x"), Adjust(loader_workers=2), CheckpointNow())
_MAX_BYTES = 1 << 18


def _noise(drawn: random.Random) -> bytes:
    return drawn.randbytes(drawn.choice((1, 7, 200, MAX_COMMAND_BYTES - 1, MAX_COMMAND_BYTES, 60_000)))


def _cut(drawn: random.Random) -> bytes:
    return HELLO[: drawn.randrange(len(HELLO))]


def _endless(drawn: random.Random) -> bytes:
    return drawn.choice((b"x", b"\0", b"[", b"{", b" ", b'"', b"\xff")) * drawn.choice(
        (MAX_COMMAND_BYTES, 70_000, _MAX_BYTES)
    )


def _empty_lines(drawn: random.Random) -> bytes:
    return drawn.choice((b"\n", b"{}\n", b"\r\n", b"null\n")) * drawn.choice((1, 100, 20_000))


def _deep(drawn: random.Random) -> bytes:
    opened, closed = drawn.choice(((b"[", b"]"), (b'{"type":', b"}"), (b'{"a":', b"}")))
    levels = drawn.choice((50, 400, (MAX_COMMAND_BYTES - 20) // (len(opened) + len(closed))))
    return opened * levels + b"1" + closed * levels + b"\n"


def _draw_wrong_types(drawn: random.Random) -> bytes:
    """Return a message whose fields have wrong types. Sometimes it follows a valid hello message."""
    text = damage_text(ENCODE.encode(drawn.choice(_MESSAGES)).decode(), drawn, drawn.choice((1, 1, 2, 5)))
    return (HELLO if drawn.random() < 0.5 else b"") + text.encode("utf-8", "surrogatepass")[:_MAX_BYTES] + b"\n"


def _unknown(drawn: random.Random) -> bytes:
    kind = drawn.choice(("restart", "kill", "", "welcome", "Stop", "stop ", "\\u0000stop", "hello", "run_finished"))
    return HELLO + b'{"type":"%s","n":1,"path":"/etc/passwd"}\n' % kind.encode()


def _draw_many_commands(drawn: random.Random) -> bytes:
    """Return a hello message and up to 500 invalid commands. The server disconnects the client at the first one."""
    return HELLO + b'{"type":"adjust","loader_workers":0}\n' * drawn.choice((2, 500))


def _not_utf8(drawn: random.Random) -> bytes:
    return HELLO[:-3] + drawn.choice((b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"\0")) + HELLO[-3:]


MESSAGES: tuple[Callable[[random.Random], bytes], ...] = (
    _noise, _cut, _endless, _empty_lines, _deep, _draw_wrong_types, _draw_wrong_types, _draw_wrong_types, _unknown, _draw_many_commands, _not_utf8,
)  # fmt: skip


def draw_message(drawn: random.Random) -> bytes:
    """Return the bytes of a random hostile message, such as noise, a cut message or an invalid command."""
    return drawn.choice(MESSAGES)(drawn)


def send(client: socket.socket, content: bytes, drawn: random.Random) -> bool:
    """Send bytes in a randomly chosen way without blocking, for example one by one or together with open files.

    Returns True if the client should disconnect immediately, or if the server has closed the connection.
    """
    way = drawn.choice(("whole", "whole", "whole", "pieces", "half closed", "gone", "reset", "files"))
    try:
        if way == "pieces":
            for start in range(0, min(len(content), 300)):
                client.send(content[start : start + 1])
        elif way == "files":  # a Unix socket can transfer many files, which the receiver must close
            with open(os.devnull, "rb") as null:
                socket.send_fds(client, [content[:1000] or b"\n"], [null.fileno()] * 100)
        else:
            client.send(content)
        if way == "half closed":
            client.shutdown(socket.SHUT_WR)
        elif way == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        return True  # the server closed the connection while the client was sending
    return way in ("gone", "reset")
