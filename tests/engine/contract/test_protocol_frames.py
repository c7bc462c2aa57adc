"""Framing of messages. The lines, or the kind of error, must not depend on how the bytes are split."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract.events import ENCODE, EVENT, DevicesSampled, Failed, LogLine, RunFinished, StepMetrics
from engine.contract.protocol import CLIENT_MESSAGE, SERVER_MESSAGE, FrameError, Frames, Hello
from engine.contract.worker import FROM_WORKER, TO_WORKER

LIMIT = 32


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(places)]


@given(st.lists(st.binary(max_size=LIMIT - 1).map(lambda line: line.replace(b"\n", b" "))), st.lists(st.integers(0)))
def test_frames_restore_lines_from_any_chunks(lines: list[bytes], cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    frames = Frames(LIMIT)
    assert [line for piece in pieces(data, cuts) for line in frames.feed(piece)] == lines


@given(st.binary(min_size=LIMIT), st.lists(st.integers(0)))
def test_frames_refuse_long_lines_in_any_chunks(line: bytes, cuts: list[int]) -> None:
    frames = Frames(LIMIT)
    fed = pieces(line.replace(b"\n", b" ") + b"\n", cuts)
    with pytest.raises(FrameError, match="longer than 32 bytes"):
        [frames.feed(piece) for piece in fed]
    with pytest.raises(FrameError, match="longer than 32 bytes"):
        Frames(LIMIT).feed(line.replace(b"\n", b" "))  # before it ends


@pytest.mark.parametrize("decoder", [CLIENT_MESSAGE, SERVER_MESSAGE, FROM_WORKER, TO_WORKER, EVENT])
@given(data=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode(errors="ignore")))
def test_client_message_raises_only_decode_errors(decoder: msgspec.json.Decoder[object], data: bytes) -> None:
    try:
        decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"hello","protocol":1,"extra":1}',
        b'{"type":"hello","protocol":"1"}',
        b'{"type":"hello","protocol":1.5}',
        b'{"protocol":1}',
        b'{"type":"run_started"}',
        b"[]",
        b"",
    ],
)
def test_client_message_refuses_invalid_fields(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        CLIENT_MESSAGE.decode(line)


def test_hello_of_another_version_is_decoded() -> None:
    assert CLIENT_MESSAGE.decode(b'{"type":"hello","protocol":7}') == Hello(protocol=7)


@pytest.mark.parametrize(
    "event",
    [
        LogLine(n=1, time=2.0, text="“ü” \n \x00"),
        Failed(n=2, time=3.0, cause="no memory", rank=1, step=120),
        DevicesSampled(n=3, samples=()),
        RunFinished(n=4, outcome="stopped", best={"top1": 0.5}, best_epoch=2, checkpoints=("a", "b")),
        StepMetrics(
            epoch=1, step=1, loss=0.1, learning_rate=1e-9, images_per_second=1.5, data_wait_s=0.0, compute_s=2.0
        ),
    ],
)
def test_event_survives_encoding(event: LogLine) -> None:
    line = ENCODE.encode(event)
    assert b"\n" not in line
    assert EVENT.decode(line) == SERVER_MESSAGE.decode(line) == event


def test_step_metrics_refuse_a_text_as_loss() -> None:
    event = StepMetrics(
        epoch=1,
        step=1,
        loss=float("nan"),
        learning_rate=0.1,
        images_per_second=1.0,
        data_wait_s=0.0,
        compute_s=0.0,
    )
    with pytest.raises(msgspec.ValidationError):
        EVENT.decode(ENCODE.encode(event))
