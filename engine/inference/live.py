"""Live predictions for a camera or a video. The latest frame is saved with its prediction for display."""

from __future__ import annotations

import io
import tempfile
import time
from collections import deque
from pathlib import Path

import msgspec
import torch
from msgspec import structs
from PIL import Image

from engine.contract.catalogue import predictions_of
from engine.contract.inference.messages import FRAME_FILE, LiveFrame, LiveRequest
from engine.contract.inference.prediction import CAMERA
from engine.contract.problems import Problem
from engine.data.decoding.idx import Bytes
from engine.data.drawing import to_rgb
from engine.inference.devices import OnProgress, run_on_devices
from engine.inference.trained_model import CannotLoad, TrainedModel, find_checkpoint
from engine.inference.video import NoVideo, frames, read_frame_rate
from engine.inference.worker import Shard
from engine.runs.folder import RunFolder
from engine.system import paths

_SPEED_FRAMES = 30
"""Number of latest frames over which the speed of live predictions is computed."""
_JPEG_QUALITY = 85
"""JPEG quality of the saved frames with predictions."""


def live(request: LiveRequest, on_progress: OnProgress) -> Path:
    """Run the model on the requested camera or video until it ends.

    Only the first of the requested devices is used. Returns the path of the file with the last `LiveFrame`. Raises
    CannotLoad.
    """
    run = RunFolder(request.run)
    find_checkpoint(run, request.checkpoint)  # raises CannotLoad if there is none
    job = run.job()
    if job is not None and predictions_of(job.task) in ("points", "raw"):
        raise CannotLoad(Problem("run", "This model does not work on images.", "Choose a run of another task."))
    try:
        read_frame_rate(request.source)  # only to check the source
    except NoVideo as error:
        raise CannotLoad(Problem("source", f"{request.source}: {error}", "Choose another video or camera.")) from error
    out = Path(request.out).absolute()
    paths.make_folder(out)
    request = structs.replace(request, devices=request.devices[:1], out=str(out))
    with tempfile.TemporaryDirectory() as folder:
        run_on_devices(request, Path(folder), on_progress, total=0, what="Watching")
    return out / FRAME_FILE


def predict_stream(request: LiveRequest, model: TrainedModel, shard: Shard) -> None:
    """Predict the frames of a camera or video, and write each with its drawn prediction to the file `FRAME_FILE`.

    Frames of a video file are predicted no faster than the video plays.
    """
    interval_s = 0.0 if request.source.startswith(CAMERA) else 1 / read_frame_rate(request.source)
    started = time.monotonic()
    times = deque([started], maxlen=_SPEED_FRAMES)
    for number, image in enumerate(frames(request.source, model.channels), 1):
        drawn, text = _predict_frame(model, image)
        times.append(time.monotonic())
        speed = (len(times) - 1) / (times[-1] - times[0])
        frame = LiveFrame(number=number, jpeg=_encode_jpeg(drawn), text=text, images_per_second=speed)
        paths.write_atomically(Path(request.out) / FRAME_FILE, msgspec.msgpack.encode(frame))
        shard.advance(1)
        time.sleep(max(0.0, started + number * interval_s - time.monotonic()))


def _predict_frame(model: TrainedModel, image: Bytes) -> tuple[Bytes, str]:
    """Return the model's input with the prediction drawn on it, uint8 [h, w, 3], and the text of the prediction."""
    pixels = model.frame_image(image)
    (output,) = model.outputs(model.normalize(torch.from_numpy(pixels[None]))).cpu()
    drawn = model.objective.show_prediction(to_rgb(pixels.astype("float32") / 255), output)
    return drawn.image, drawn.text


def _encode_jpeg(image: Bytes) -> bytes:
    """Encode an image, uint8 [h, w, 3], as JPEG."""
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "JPEG", quality=_JPEG_QUALITY)
    return stream.getvalue()
