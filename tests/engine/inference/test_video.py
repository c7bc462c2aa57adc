"""Reading of videos."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from engine.inference.video import VIDEO_EXTENSIONS, NoVideo, VideoWriter, frames, is_video, read_frame_rate

cv2 = pytest.importorskip("cv2")

PLAYLISTS = {
    "concat": "ffconcat version 1.0\nfile video.mp4\n",
    "hls": "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nvideo.mp4\n#EXT-X-ENDLIST\n",
    "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n",
}


RATE = 29.97
COLORS = ((200, 40, 40), (40, 160, 40), (40, 40, 120))
"""Colors of the frames, RGB."""


@pytest.fixture
def video(tmp_path: Path) -> Path:
    path = tmp_path / "video.mp4"
    with VideoWriter(path, RATE) as writer:
        for color in COLORS:
            writer.add(np.full((48, 64, 3), color, np.uint8))
    return path


def test_frames_of_a_video_are_read(video: Path) -> None:
    assert read_frame_rate(str(video)) == pytest.approx(RATE)
    for channels, expected in ((3, np.array(COLORS)), (1, np.array(COLORS).mean(1, keepdims=True))):
        read = np.stack(list(frames(video, channels)))
        assert read.shape == (len(COLORS), 48, 64, channels)
        assert read.mean((1, 2)) == pytest.approx(expected, abs=8)


def test_formats_of_the_user_are_respected(video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCV_FFMPEG_CAPTURE_OPTIONS", "format_whitelist;avi")
    with pytest.raises(NoVideo):
        next(frames(video))


def test_unknown_frame_rate_is_the_usual_one(video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rated = cv2.VideoCapture(str(video))
    unrated = SimpleNamespace(isOpened=rated.isOpened, get=lambda _: 0.0, read=rated.read, release=rated.release)
    monkeypatch.setattr(cv2, "VideoCapture", lambda *_: unrated)
    assert read_frame_rate(str(video)) == 25


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("empty.mp4", "it is empty"),
        ("none.mp4", "it can't be read"),
        ("", "it is not a regular file"),
        ("torn.mp4", "it is not a readable video"),
        ("camera:99", "Camera 99 can't be opened"),
        ("camera:x", "is not a camera"),
    ],
)
def test_unreadable_source_has_a_reason(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "torn.mp4").write_bytes(b"no video")
    with pytest.raises(NoVideo, match=reason):
        next(frames(name if name.startswith("camera") else tmp_path / name))
    assert [is_video(path) for path in ("a.MP4", "camera:0", "a.png")] == [True, True, False]


def test_missing_opencv_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(NoVideo, match=r"need OpenCV. Install it with: .*footplate\[video\]"):
        next(frames("camera:0"))


def test_failed_video_leaves_no_file(tmp_path: Path) -> None:
    with suppress(NoVideo), VideoWriter(tmp_path / "video.mp4", RATE) as writer:
        writer.add(np.zeros((48, 64, 3), np.uint8))
        raise NoVideo
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NoVideo, match="can't be written"), VideoWriter(tmp_path / "none/video.mp4", RATE) as writer:
        writer.add(np.zeros((48, 64, 3), np.uint8))


@pytest.mark.parametrize("ending", sorted(VIDEO_EXTENSIONS & {".mp4", ".ts", ".mkv", ".avi"}))
@pytest.mark.parametrize("kind", PLAYLISTS)
def test_playlist_opens_no_other_file(video: Path, kind: str, ending: str) -> None:
    playlist = video.with_name(f"playlist{ending}")
    playlist.write_text(PLAYLISTS[kind])
    with pytest.raises(NoVideo):
        list(frames(playlist))


def test_name_is_no_pattern_of_images(video: Path) -> None:
    pattern = video.with_name("frame-%02d.mp4")
    pattern.write_bytes(b"no video")
    for number in range(3):
        video.with_name(f"frame-{number:02}.mp4").write_bytes(video.read_bytes())
    with pytest.raises(NoVideo):
        list(frames(pattern))
