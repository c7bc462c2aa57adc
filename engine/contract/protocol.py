"""Messages on the supervisor's socket: one JSON object per line, at most `MAX_FRAME_BYTES` long including the newline.

Messages from a client are limited to `MAX_COMMAND_BYTES`. The client starts with `Hello`. The server answers with
`Welcome` and sends the run's events from the requested number on, byte for byte as in `events.jsonl`, followed by new
events as they occur. The client may send commands at any time. After an invalid message (unknown field, wrong type,
frame over the limit, another version, wrong token) the server disconnects that client with a `Goodbye` that states the
reason.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from engine.contract.events import AnyEvent

PROTOCOL_VERSION = 1
MAX_FRAME_BYTES = 1 << 20
MAX_COMMAND_BYTES = 1 << 15
"""Size limit for frames from a client.

A path has at most 4,096 bytes, and JSON may escape each byte with six characters.
"""
COMMANDS_ONLY = (1 << 63) - 1
"""Value of `from_n` for clients that only send commands. They are admitted even if the limit for readers is reached."""


class Message(msgspec.Struct, tag_field="type", forbid_unknown_fields=True, kw_only=True, frozen=True):
    pass


class Hello(Message, tag="hello", kw_only=True, frozen=True):
    """First message from a client. `from_n` is the first requested event, or `COMMANDS_ONLY`.

    `token` is for loopback sockets.
    """

    protocol: int = PROTOCOL_VERSION
    from_n: int = 1
    token: str = ""


class Stop(Message, tag="stop", kw_only=True, frozen=True):
    """Command to stop all ranks of a run after the current step and save the last state."""


class Pause(Message, tag="pause", kw_only=True, frozen=True):
    """Command to stop all ranks as `Stop` does, but to mark the run as paused instead of stopped."""


class CheckpointNow(Message, tag="checkpoint_now", kw_only=True, frozen=True):
    pass


class Adjust(Message, tag="adjust", kw_only=True, frozen=True):
    """Command to change the number of threads per worker that read images, while the run continues."""

    loader_workers: Annotated[int, Meta(ge=1, le=256)]


class SaveElsewhere(Message, tag="save_elsewhere", kw_only=True, frozen=True):
    """Command to save the last state in `folder`, an absolute path, because the run's disk is full. The run then ends.

    The answer is a warning: "saved_elsewhere", or "not_saved_elsewhere" with the reason.
    """

    folder: str


Command = Stop | Pause | CheckpointNow | Adjust | SaveElsewhere
"""Command to a run. The supervisor forwards it to the workers."""

ClientMessage = Hello | Command


class Welcome(Message, tag="welcome", kw_only=True, frozen=True):
    """Answer of a run's supervisor to a client's `Hello`. `next_n` is the number of the next new event."""

    protocol: int
    run_id: str
    next_n: int


class Goodbye(Message, tag="goodbye", kw_only=True, frozen=True):
    """Last message of a run's supervisor to a client that it disconnects, with the reason."""

    reason: str


CLIENT_MESSAGE = msgspec.json.Decoder(ClientMessage)
SERVER_MESSAGE = msgspec.json.Decoder(Welcome | Goodbye | AnyEvent)
ENCODE = msgspec.json.Encoder()


class FrameError(ValueError):
    """Raised when the received data is not a frame of this protocol."""


class Frames:
    """Splitter that divides a byte stream into lines of limited length."""

    def __init__(self, limit: int = MAX_FRAME_BYTES) -> None:
        self._limit = limit
        self._incomplete_line = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, without newlines. Raises FrameError for a line over the limit."""
        *lines, self._incomplete_line = (self._incomplete_line + data).split(b"\n")
        if any(len(line) >= self._limit for line in (*lines, self._incomplete_line)):
            raise FrameError(f"a frame is longer than {self._limit} bytes")
        return lines
