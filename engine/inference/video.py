"""Read videos and cameras, and write videos, with OpenCV."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

import numpy as np

from engine.contract.inference.prediction import CAMERA
from engine.data.decoding.idx import Bytes
from engine.system.plugins import install_command

VIDEO_EXTENSIONS = frozenset({".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg", ".wmv", ".ts"})
FFMPEG_FORMATS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpeg,mpegts,mpegvideo,asf,ogg,flv,m4v"
"""FFmpeg formats that may be read, regardless of the file name.

Playlists are excluded, since they open other files and URLs.
"""
DEFAULT_RATE = 25.0
"""Frames per second that are assumed if the source of a video does not state them."""


class NoVideo(Exception):  # noqa: N818 - it describes the source
    """Raised when a video or camera can't be read, or a video can't be written."""


def is_video(path: str) -> bool:
    """Return True if `path` has the extension of a video file or is the name of a camera."""
    return path.startswith(CAMERA) or os.path.splitext(path)[1].lower() in VIDEO_EXTENSIONS


def frames(source: str | Path, channels: int = 3) -> Iterator[Bytes]:
    """Yield the frames of a video file or a camera ("camera:0"), uint8 [h, w, channels].

    `channels` is 3 for RGB or 1 for gray. Raises NoVideo.
    """
    for image, _ in _read_frames(str(source)):
        yield image if channels == 3 else image.mean(2, keepdims=True).round().astype(np.uint8)


def read_frame_rate(source: str) -> float:
    """Return the frames per second of a video file or camera. Raises NoVideo."""
    for _, rate in _read_frames(source):
        return rate
    return DEFAULT_RATE


def _read_frames(source: str) -> Iterator[tuple[Bytes, float]]:
    """Yield each frame of a source in RGB, together with the frames per second of the source."""
    cv2 = _import_opencv()
    if source.startswith(CAMERA):
        number = source.removeprefix(CAMERA)
        if not number.isdecimal():
            raise NoVideo(f"“{source}” is not a camera. Give its number, as in {CAMERA}0.")
        video, problem = cv2.VideoCapture(int(number)), f"Camera {number} can't be opened."
    else:
        _check_file(source)
        video, problem = _open_file(cv2, source), "it is not a readable video"
    try:
        if not video.isOpened():
            raise NoVideo(problem)
        rate = video.get(cv2.CAP_PROP_FPS)
        frame_count = 0
        while True:
            has_frame, image = video.read()
            if not has_frame:
                break
            frame_count += 1
            yield cv2.cvtColor(image, cv2.COLOR_BGR2RGB), rate if rate > 0 else DEFAULT_RATE
        if not frame_count:
            raise NoVideo("it has no frames")
    finally:
        video.release()


def _open_file(cv2: ModuleType, path: str) -> Any:
    """Return a `cv2.VideoCapture` of a video file, which uses FFmpeg if OpenCV includes it.

    Other backends of OpenCV would interpret some file names as patterns or commands.
    """
    has_ffmpeg = cv2.videoio_registry.hasBackend(cv2.CAP_FFMPEG)
    return cv2.VideoCapture(path, cv2.CAP_FFMPEG if has_ffmpeg else cv2.CAP_ANY)


def _check_file(path: str) -> None:
    """Raise NoVideo if a file is missing, empty or not a regular file."""
    try:
        info = os.stat(path)
    except OSError as error:
        raise NoVideo(f"it can't be read ({error.strerror})") from error
    if not os.path.isfile(path):
        raise NoVideo("it is not a regular file")
    if not info.st_size:
        raise NoVideo("it is empty")


class VideoWriter:
    """Context manager that writes a video. All frames must have the same size.

    `rate` is in frames per second. The file at `path` appears when the video is complete.
    """

    def __init__(self, path: Path, rate: float) -> None:
        self._path = path
        self._partial = path.with_name(f".{path.stem}.part{path.suffix}")
        self._rate = rate  # frames per second
        self._writer: Any = None  # created with the first frame

    def __enter__(self) -> Self:
        return self

    def add(self, image: Bytes) -> None:
        """Add a frame, uint8 [h, w, 3]. Raises NoVideo."""
        cv2 = _import_opencv()
        if self._writer is None:
            height, width = image.shape[:2]
            self._writer = cv2.VideoWriter(
                str(self._partial), cv2.VideoWriter.fourcc(*"mp4v"), self._rate, (width, height)
            )
            if not self._writer.isOpened():
                raise NoVideo(f"{self._path} can't be written.")
        self._writer.write(cv2.cvtColor(image, cv2.COLOR_RGB2BGR))

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Move the video to its path, or delete it if the context ends with an error."""
        if self._writer is None:
            return
        self._writer.release()
        if error_type is None:
            os.replace(self._partial, self._path)
        else:
            with suppress(OSError):
                self._partial.unlink()


def _import_opencv() -> ModuleType:
    """Import OpenCV, and return the module. Raises NoVideo if it is not installed.

    Environment variables turn its log messages off, and limit FFmpeg to the container formats in `FFMPEG_FORMATS`,
    unless the user has set them.
    """
    os.environ.setdefault("OPENCV_LOG_LEVEL", "SILENT")  # broken files are reported by our own messages
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
    os.environ.setdefault("OPENCV_FFMPEG_CAPTURE_OPTIONS", f"format_whitelist;{FFMPEG_FORMATS}")
    try:
        import cv2
    except ImportError as error:
        raise NoVideo(f"Videos and cameras need OpenCV. Install it with: {install_command('video')}") from error
    return cv2
