"""Download of a job's pretrained weights into the caches of the libraries that read them.

``python -m engine.models.fetch`` is a process without torch. It takes the weights as JSON, and writes its progress and
any failure as events, one a line; after a failure it exits with 1. Downloads, cached files and files that come with the
installation are compared with their hashes before they are used.
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
from engine.contract.weights import Weights, cached_path, find, offline, ways_out
from engine.system import linux

TOLD_S = 0.5
"""Seconds between two reports of progress."""
ANSWER_S = 30.0
"""Timeout in seconds of a server that sends nothing."""
_CHUNK = 1 << 18
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HASH_IN_NAME = re.compile(r"-([0-9a-f]{8,64})\.")
"""As in torch.hub."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

OnProgress = Callable[[int, int | None], object]
"""Called with the downloaded bytes and the total, None where that is unknown."""


class CannotFetch(Exception):  # noqa: N818  (it says what happened)
    """Why weights cannot be had, in one sentence, and what to do about it."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message} {remedy}")
        self.message, self.remedy = message, remedy


def fetch(weights: Weights, on_progress: OnProgress) -> Path:
    """Return the file of `weights`, downloaded unless it is on this machine. Raises CannotFetch."""
    here = find(weights).path
    if here:
        if _is_damaged(Path(here), weights):
            message = f"The pretrained weights in {here} are damaged: their SHA-256 does not match."
            again = "Remove that file. The run then downloads it again."
            raise CannotFetch(message, ways_out(weights) if weights.is_included else again)
        return Path(here)
    if weights.is_included:
        message = f"The included weights {weights.distribution} are missing: {cached_path(weights)} does not exist."
        raise CannotFetch(message, ways_out(weights))
    if offline():
        message = (
            f"The pretrained weights {weights.title} are not on this machine, and HF_HUB_OFFLINE prevents "
            "downloading them."
        )
        raise CannotFetch(message, ways_out(weights))
    try:
        path = _from_hub(weights, on_progress) if weights.repository else _from_url(weights, on_progress)
    except OSError as error:
        if error.errno in _FULL:
            message = (
                f"There is no room for the pretrained weights {weights.title}: {cached_path(weights).parent} is full."
            )
            raise CannotFetch(
                message, f"Free some space there, or set {_cache_variable(weights)} to another folder."
            ) from error
        if isinstance(error, PermissionError) or error.errno == errno.EROFS:
            message = f"The pretrained weights {weights.title} can't be written ({_line(error)})."
            remedy = f"Get write permission there, or set {_cache_variable(weights)} to another folder."
            raise CannotFetch(message, remedy) from error
        message = f"The pretrained weights {weights.title} could not be downloaded ({_line(error)})."
        raise CannotFetch(message, f"Try again. {ways_out(weights)}") from error
    if _is_damaged(path, weights):
        _forget(path)
        message = f"The pretrained weights {weights.title} were damaged in the download: their SHA-256 does not match."
        raise CannotFetch(message, f"Try again. {ways_out(weights)}")
    return path


# From the hub


def _from_hub(weights: Weights, on_progress: OnProgress) -> Path:
    from huggingface_hub import errors, hf_hub_download

    page, ways = weights.page, ways_out(weights)
    bar = _bar(on_progress)
    for file in weights.files:
        try:
            path = hf_hub_download(weights.repository, file, revision=weights.revision, tqdm_class=bar)
            return Path(path)
        except errors.GatedRepoError as error:
            message = f"{page} is gated: its owner must grant you access."
            raise CannotFetch(message, f"Request access there and log in with `hf auth login`. {ways}") from error
        except errors.RepositoryNotFoundError as error:
            raise CannotFetch(f"You have no access to {page}: it is gone or private.", ways) from error
        except errors.RevisionNotFoundError as error:
            raise CannotFetch(f"{page} has no revision {weights.revision}.", ways) from error
        except errors.LocalEntryNotFoundError as error:
            raise _out_of_reach(weights, error.__cause__ or error) from error
        except errors.EntryNotFoundError:
            continue
        except errors.HfHubHTTPError as error:
            raise CannotFetch(
                f"{weights.host} refused to send {weights.title} ({_line(error)}).", f"Try again. {ways}"
            ) from error
        except errors.HTTPError as error:
            raise _out_of_reach(weights, error) from error
    raise CannotFetch(f"{page} has none of the files {', '.join(weights.files)}.", ways)


def _out_of_reach(weights: Weights, cause: BaseException) -> CannotFetch:
    """Why the hub has told nothing of a file."""
    from huggingface_hub import errors

    if isinstance(cause, errors.FileMetadataError):
        return _no_hub(weights)
    message = (
        f"The pretrained weights {weights.title} can't be downloaded: {weights.host} can't be reached ({_line(cause)})."
    )
    return CannotFetch(message, ways_out(weights))


def _no_hub(weights: Weights) -> CannotFetch:
    message = f"Something else answers for {weights.host}, such as a proxy or a login page."
    return CannotFetch(message, f"Log in there, or set HTTPS_PROXY. {ways_out(weights)}")


def _bar(on_progress: OnProgress) -> Any:
    """Return a class of invisible progress bars, of which huggingface_hub creates one for each download."""
    from tqdm import tqdm

    class Bar(tqdm):
        def __init__(self, *args: Any, **given: Any) -> None:
            given.pop("name", None)
            super().__init__(*args, **{**given, "disable": True})
            self.total = given.get("total")
            self.done = int(given.get("initial") or 0)

        def update(self, n: float | None = 1) -> None:
            self.done += int(n or 0)
            on_progress(self.done, int(self.total) if self.total else None)

    return Bar


# From an address


def _from_url(weights: Weights, on_progress: OnProgress) -> Path:
    path = cached_path(weights)
    path.parent.mkdir(parents=True, exist_ok=True)
    ways = ways_out(weights)
    try:
        with urlopen(weights.url, timeout=ANSWER_S) as answer, _taking_shape(path) as stream:
            if answer.headers.get_content_type() == "text/html":
                raise _no_hub(weights)
            length = answer.headers.get("Content-Length")
            total, done = int(length) if length else None, 0
            while chunk := answer.read(_CHUNK):
                stream.write(chunk)
                done += len(chunk)
                on_progress(done, total)
            if total is not None and done < total:
                message = f"The connection to {weights.host} was lost after {done:,} of {total:,} bytes."
                raise CannotFetch(message, f"Try again. {ways}")
    except HTTPError as error:
        with error:
            message = f"{weights.url} can't be downloaded ({error.code} {error.reason})."
        raise CannotFetch(message, ways) from error
    except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
        raise _out_of_reach(weights, error) from error
    return path


@contextmanager
def _taking_shape(path: Path) -> Iterator[Any]:
    """Open a file next to `path` that replaces it when it is complete, and is deleted otherwise."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as stream:
            yield stream
        if _is_other_than(partial, _hash_in_name(path)):
            message = f"The download of {path.name} is damaged: its SHA-256 does not match its name."
            raise CannotFetch(message, "Try again, or set a weights file.")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


# Whether it is what it should be


def _is_damaged(path: Path, weights: Weights) -> bool:
    """Return True if the file's SHA-256 differs from the expected one.

    That is the one of `weights`, or else the one in the file's name: torch's names contain its beginning, the hub's
    blobs are named by it. Without either, as for files that users put there, nothing is compared.
    """
    blob = path.resolve().name
    return _is_other_than(path, weights.sha256 or (blob if _SHA256.fullmatch(blob) else _hash_in_name(path)))


def _hash_in_name(path: Path) -> str:
    found = _HASH_IN_NAME.search(path.name)
    return found[1] if found else ""


def _is_other_than(path: Path, sha256: str) -> bool:
    if not sha256:
        return False
    with path.open("rb") as stream:
        return not hashlib.file_digest(stream, "sha256").hexdigest().startswith(sha256)


def _forget(path: Path) -> None:
    """Delete a file from the hub's cache, with the files that it links to."""
    blob = path.resolve()
    path.unlink()
    blob.unlink(missing_ok=True)


def _cache_variable(weights: Weights) -> str:
    return "HF_HUB_CACHE" if weights.repository else "TORCH_HOME"


def _line(error: BaseException) -> str:
    text = str(getattr(error, "reason", "") or error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__


def main(argv: list[str]) -> int:
    linux.signal_at_parents_death(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what has arrived in part is removed
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"  # it fetches what is asked for and nothing else
    weights = msgspec.json.decode(argv[0], type=Weights)
    told = 0.0

    def tell(done: int, total: int | None) -> None:
        nonlocal told
        now = time.monotonic()
        if now >= told + TOLD_S or done == total:
            told = now
            _say(Fetching(source=weights.title, done_bytes=done, total_bytes=total))

    try:
        fetch(weights, tell)
    except CannotFetch as error:
        _say(Failed(cause=str(error), field="pretrained"))
        return 1
    return 0


def _say(event: Fetching | Failed) -> None:
    sys.stdout.buffer.write(ENCODE.encode(event) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
