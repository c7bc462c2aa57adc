"""Program ``python -m engine.models.fetch``, which downloads a job's pretrained weights.

It stores them in the caches of the libraries that read them, and does not import torch. It reads the `Weights` as JSON,
and writes its progress and any failure as events, one per line. After a failure, its exit code is 1. Downloads, cached
files and files from the installation are compared with their hashes before they are used.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import msgspec

from engine.contract.events import ENCODE, Failed, Fetching
from engine.contract.weights import Weights, cached_path, find_weights, is_offline, unavailable_remedy
from engine.system import linux
from engine.system.files import open_file

PROGRESS_INTERVAL_S = 0.5
"""Seconds between two reports of the progress."""
SERVER_TIMEOUT_S = 30.0
"""Time in seconds without data from a server after which a download fails."""
_CHUNK_BYTES = 1 << 18
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HASH_IN_NAME = re.compile(r"-([0-9a-f]{8,64})\.")
"""Pattern for the beginning of the hash in a file name, the same as in torch.hub."""
_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

OnProgress = Callable[[int, int | None], object]
"""Callback that receives the number of downloaded bytes and the total number, which is None if it is unknown."""


class CannotFetch(Exception):  # noqa: N818
    """Raised when weights can't be fetched. `message` describes the cause in a sentence, and `remedy` gives advice."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message} {remedy}")
        self.message, self.remedy = message, remedy


def fetch(weights: Weights, on_progress: OnProgress) -> Path:
    """Return the file with pretrained weights, after downloading it if it is not on this machine. Raises CannotFetch.

    During the download, `on_progress` is called with the number of downloaded bytes and the total, or None if unknown.
    """
    cached = find_weights(weights).path
    if cached:
        if _is_damaged(Path(cached), weights):
            message = f"The pretrained weights in {cached} are damaged: their SHA-256 does not match."
            remedy = "Remove that file. The run then downloads it again."
            raise CannotFetch(message, unavailable_remedy(weights) if weights.is_included else remedy)
        return Path(cached)
    if weights.is_included:
        message = f"The included weights {weights.distribution} are missing: {cached_path(weights)} does not exist."
        raise CannotFetch(message, unavailable_remedy(weights))
    if is_offline():
        message = (
            f"The pretrained weights {weights.title} are not on this machine, and HF_HUB_OFFLINE prevents "
            "downloading them."
        )
        raise CannotFetch(message, unavailable_remedy(weights))
    try:
        download = _download_from_hub if weights.repository else _download_from_url
        path = download(weights, on_progress)
    except OSError as error:
        raise _create_write_error(weights, error) from error
    if _is_damaged(path, weights):
        _delete_cached(path)
        message = f"The pretrained weights {weights.title} were damaged in the download: their SHA-256 does not match."
        raise CannotFetch(message, f"Try again. {unavailable_remedy(weights)}")
    return path


def _create_write_error(weights: Weights, error: OSError) -> CannotFetch:
    """Create the error for a download that was interrupted or can't be stored because of `error`."""
    title, variable = weights.title, _get_cache_variable(weights)
    if error.errno in _DISK_FULL_ERRORS:
        message = f"There is no room for the pretrained weights {title}: {cached_path(weights).parent} is full."
        return CannotFetch(message, f"Free some space there, or set {variable} to another folder.")
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        message = f"The pretrained weights {title} can't be written ({get_first_line(error)})."
        return CannotFetch(message, f"Get write permission there, or set {variable} to another folder.")
    message = f"The pretrained weights {title} could not be downloaded ({get_first_line(error)})."
    return CannotFetch(message, f"Try again. {unavailable_remedy(weights)}")


# Hugging Face Hub


def _download_from_hub(weights: Weights, on_progress: OnProgress) -> Path:
    """Download weights from the Hugging Face Hub to its cache and return the file. Raises CannotFetch."""
    from huggingface_hub import errors, hf_hub_download

    page, alternatives = weights.page, unavailable_remedy(weights)
    progress_bar = _create_progress_bar_class(on_progress)
    for file in weights.files:
        try:
            path = hf_hub_download(weights.repository, file, revision=weights.revision, tqdm_class=progress_bar)
            return Path(path)
        except errors.GatedRepoError as error:
            message = f"{page} is gated: its owner must grant you access."
            raise CannotFetch(
                message, f"Request access there and log in with `hf auth login`. {alternatives}"
            ) from error
        except errors.RepositoryNotFoundError as error:
            raise CannotFetch(f"You have no access to {page}: it is gone or private.", alternatives) from error
        except errors.RevisionNotFoundError as error:
            raise CannotFetch(f"{page} has no revision {weights.revision}.", alternatives) from error
        except errors.LocalEntryNotFoundError as error:
            raise _create_unreachable_error(weights, error.__cause__ or error) from error
        except errors.EntryNotFoundError:
            continue
        except errors.HfHubHTTPError as error:
            raise CannotFetch(
                f"{weights.host} refused to send {weights.title} ({get_first_line(error)}).",
                f"Try again. {alternatives}",
            ) from error
        except errors.HTTPError as error:
            raise _create_unreachable_error(weights, error) from error
    raise CannotFetch(f"{page} has none of the files {', '.join(weights.files)}.", alternatives)


def _create_unreachable_error(weights: Weights, cause: BaseException) -> CannotFetch:
    """Create the error for a failed connection to the server, or for an unexpected answer. `cause` is the exception."""
    from huggingface_hub import errors

    if isinstance(cause, errors.FileMetadataError):  # some server answered, but not like the hub
        return _create_wrong_server_error(weights)
    message = f"The pretrained weights {weights.title} can't be downloaded: {weights.host} can't be reached ({get_first_line(cause)})."
    return CannotFetch(message, unavailable_remedy(weights))


def _create_wrong_server_error(weights: Weights) -> CannotFetch:
    """Create the error for a response that does not come from the server of the weights, such as a login page."""
    message = f"Something else answers for {weights.host}, such as a proxy or a login page."
    return CannotFetch(message, f"Log in there, or set HTTPS_PROXY. {unavailable_remedy(weights)}")


def _create_progress_bar_class(on_progress: OnProgress) -> Any:
    """Create a class of progress bars that display nothing and call `on_progress`.

    huggingface_hub creates one instance for each download.
    """
    from tqdm import tqdm

    class Bar(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            options.pop("name", None)  # of huggingface_hub, unknown to tqdm
            super().__init__(*args, **{**options, "disable": True})
            self.total = options.get("total")
            self.done = int(options.get("initial") or 0)

        def update(self, n: float | None = 1) -> None:
            """Report `n` more downloaded bytes."""
            self.done += int(n or 0)
            on_progress(self.done, int(self.total) if self.total else None)

    return Bar


# Plain URLs


def _download_from_url(weights: Weights, on_progress: OnProgress) -> Path:
    """Download weights from a URL to torch's cache and return the file. Raises CannotFetch."""
    path = cached_path(weights)
    path.parent.mkdir(parents=True, exist_ok=True)
    alternatives = unavailable_remedy(weights)
    try:
        with urlopen(weights.url, timeout=SERVER_TIMEOUT_S) as response, _open_partial(path) as stream:
            if response.headers.get_content_type() == "text/html":
                raise _create_wrong_server_error(weights)
            length = response.headers.get("Content-Length")
            total, received = int(length) if length else None, 0
            while chunk := response.read(_CHUNK_BYTES):
                stream.write(chunk)
                received += len(chunk)
                on_progress(received, total)
            if total is not None and received < total:
                message = f"The connection to {weights.host} was lost after {received:,} of {total:,} bytes."
                raise CannotFetch(message, f"Try again. {alternatives}")
    except HTTPError as error:
        with error:
            message = f"{weights.url} can't be downloaded ({error.code} {error.reason})."
        raise CannotFetch(message, alternatives) from error
    except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
        raise _create_unreachable_error(weights, error) from error
    return path


@contextmanager
def _open_partial(path: Path) -> Iterator[Any]:
    """Context manager that opens a temporary file next to `path`.

    If the block succeeds, the file is verified with the hash in the name of `path`, and replaces `path`. Otherwise, it
    is deleted. Raises CannotFetch if the hash differs.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as stream:
            yield stream
        if _differs_from(partial, _find_hash_in_name(path)):
            message = f"The download of {path.name} is damaged: its SHA-256 does not match its name."
            raise CannotFetch(message, "Try again, or set a weights file.")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


# Verification


def _is_damaged(path: Path, weights: Weights) -> bool:
    """Return True if the SHA-256 of a file differs from the expected one.

    The expected hash is stated in `weights`, or else in the file name. File names of torch contain the beginning of the
    hash, and blobs in the hub's cache have the hash as their name. Without an expected hash, as for files that users
    put into the cache, the result is False.
    """
    expected: str | None = weights.sha256
    if not expected:
        blob = path.resolve().name
        expected = blob if _SHA256.fullmatch(blob) else _find_hash_in_name(path)
    return _differs_from(path, expected)


def _find_hash_in_name(path: Path) -> str | None:
    """Return the beginning of the SHA-256 that a file name contains, or None if it contains no hash."""
    match = _HASH_IN_NAME.search(path.name)
    return match[1] if match else None


def _differs_from(path: Path, sha256: str | None) -> bool:
    """Return True if the hash of a file does not begin with `sha256`. If `sha256` is None, return False."""
    if sha256 is None:
        return False
    with open_file(path) as stream:
        return not hashlib.file_digest(stream, "sha256").hexdigest().startswith(sha256)


def _delete_cached(path: Path) -> None:
    """Delete a link from the cache of the Hugging Face Hub, and the file that it points to."""
    blob = path.resolve()
    path.unlink()
    blob.unlink(missing_ok=True)


def _get_cache_variable(weights: Weights) -> str:
    """Return the name of the environment variable that sets the cache folder for the weights."""
    return "HF_HUB_CACHE" if weights.repository else "TORCH_HOME"


def get_first_line(error: BaseException) -> str:
    """Return the first line of an error message, or the name of the error's type if there is no message."""
    text = str(getattr(error, "reason", "") or error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__


def main(argv: list[str]) -> int:
    """Download the weights that the first argument describes, and print the progress as JSON lines.

    Returns 1 if the download fails.
    """
    linux.signal_at_parents_death(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # removes the partial file
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    weights = msgspec.json.decode(argv[0], type=Weights)
    reported = 0.0

    def report(done: int, total: int | None) -> None:
        """Write the progress of the download, given the downloaded bytes and the total.

        Nothing is written within `PROGRESS_INTERVAL_S` of the last time, unless the download is complete.
        """
        nonlocal reported
        now = time.monotonic()
        if now >= reported + PROGRESS_INTERVAL_S or done == total:
            reported = now
            _emit(Fetching(source=weights.title, done_bytes=done, total_bytes=total))

    try:
        fetch(weights, report)
    except CannotFetch as error:
        _emit(Failed(cause=str(error), field="pretrained"))
        return 1
    return 0


def _emit(event: Fetching | Failed) -> None:
    """Write a progress or failure event as a line of JSON to the standard output."""
    sys.stdout.buffer.write(ENCODE.encode(event) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
