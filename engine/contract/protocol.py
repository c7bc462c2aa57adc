"""The socket's messages: one JSON object a line, at most `MAX_FRAME_BYTES` long with its newline, and from a client
`MAX_COMMAND_BYTES`.

The client speaks first, with `Hello`. The server answers with `Welcome`, then sends the run's event lines
from the number asked for, byte for byte as they stand in `events.jsonl`, and goes on with new ones as they
come. The client may send commands at any time. Whatever breaks the rules (unknown field, wrong type, a frame
over the limit, another version, a wrong token) ends that client with a `Goodbye` that says why, and nothing else.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from engine.contract.events import AnyEvent

PROTOCOL_VERSION = 1
MAX_FRAME_BYTES = 1 << 20
MAX_COMMAND_BYTES = 1 << 15
"""What a client has to say is shorter than that: a path has 4,096 bytes at most, each of which JSON may need six
for."""
COMMANDS_ONLY = (1 << 63) - 1
"""The `from_n` of a client that sends commands and wants no events: it gets in however many readers there are."""


class Message(msgspec.Struct, tag_field="type", forbid_unknown_fields=True, kw_only=True, frozen=True):
    pass


class Hello(Message, tag="hello", kw_only=True, frozen=True):
    """`from_n` is the number of the first event wanted, or COMMANDS_ONLY. `token` is needed on a loopback connection
    alone.
    """

    protocol: int = PROTOCOL_VERSION
    from_n: int = 1
    token: str = ""


class Stop(Message, tag="stop", kw_only=True, frozen=True):
    """All ranks end after the step in hand; the last state is saved."""


class Pause(Message, tag="pause", kw_only=True, frozen=True):
    """As `Stop`; the run is to be gone on with, and says so."""


class CheckpointNow(Message, tag="checkpoint_now", kw_only=True, frozen=True):
    pass


class Adjust(Message, tag="adjust", kw_only=True, frozen=True):
    """Changes what can be changed of a run as it goes: the threads that read images, per worker process."""

    loader_workers: Annotated[int, Meta(ge=1, le=256)]


class SaveElsewhere(Message, tag="save_elsewhere", kw_only=True, frozen=True):
    """A last state that the disk of the run's folder does not take is saved in `folder`, a whole path, and the run
    ends. The answer is a warning: "saved_elsewhere", or "not_saved_elsewhere" with the reason.
    """

    folder: str


Command = Stop | Pause | CheckpointNow | Adjust | SaveElsewhere
"""What may be asked of a run; the supervisor hands it on to the workers."""

ClientMessage = Hello | Command


class Welcome(Message, tag="welcome", kw_only=True, frozen=True):
    """`next_n` is the number that the next new event will have."""

    protocol: int
    run_id: str
    next_n: int


class Goodbye(Message, tag="goodbye", kw_only=True, frozen=True):
    """The server's last word to this client."""

    reason: str


CLIENT_MESSAGE = msgspec.json.Decoder(ClientMessage)
SERVER_MESSAGE = msgspec.json.Decoder(Welcome | Goodbye | AnyEvent)
ENCODE = msgspec.json.Encoder()


class FrameError(ValueError):
    """What was received is not a frame of this protocol; the text says why."""


class Frames:
    """Cuts a byte stream into lines and refuses those over the limit."""

    def __init__(self, limit: int = MAX_FRAME_BYTES) -> None:
        self._limit = limit
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their newlines. Raises FrameError past the limit."""
        self._rest += data
        lines = self._rest.split(b"\n")
        self._rest = bytearray(lines.pop())
        if len(self._rest) >= self._limit or any(len(line) >= self._limit for line in lines):
            raise FrameError(f"a frame is longer than {self._limit} bytes")
        return [bytes(line) for line in lines]
