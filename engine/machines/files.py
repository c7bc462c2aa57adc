"""A run's files between its own folder and its machines: SHA-256 says whether they have come as they were."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from engine.contract.events import CheckpointSaved
from engine.contract.job import Job
from engine.contract.nodes import PART_BYTES, FileDigest, FilePart, FileWanted, file_sha256
from engine.machines.link import NodeLink
from engine.runs.folder import OLDER_CHECKPOINT, RunFolder
from engine.system import paths

RESUME, BEST, LAST = "resume.pt", "checkpoints/best.pt", "checkpoints/last.pt"
Then = Callable[[str], None]
"""What follows once a file has come (""), or cannot, with why."""


def files_for(run: RunFolder, job: Job, *, leads: bool) -> tuple[FileDigest, ...]:
    """What a machine needs of a run that goes on: the checkpoint, and the best one where its first rank is there."""
    if not job.resume_from:
        return ()
    found = [FileDigest(RESUME, file_sha256(Path(job.resume_from)))]
    best = run.path / BEST
    return (*found, FileDigest(BEST, file_sha256(best))) if leads and best.exists() else tuple(found)


def parts_of(path: str, file: Path) -> Iterator[FilePart]:
    """A file as frames. Raises OSError."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while data := stream.read(PART_BYTES):
            digest.update(data)
            yield FilePart(path=path, data=data)
    yield FilePart(path=path, data=b"", sha256=digest.hexdigest())


class Fetched:
    """The files that come from one machine. `keep` older checkpoints are kept beside last.pt."""

    def __init__(self, run: RunFolder, link: NodeLink, keep: int) -> None:
        self._run = run
        self._link = link
        self._keep = keep
        self._awaited: dict[str, list[Then]] = defaultdict(list)
        self._digests: dict[str, hashlib._Hash] = {}
        self._saved: deque[tuple[int, int]] = deque()
        self._last: tuple[int, int] | None = None
        """Where the last.pt that is here was written: epoch and step."""

    def fetch(self, path: str, then: Then) -> None:
        """Asks for a file; calls `then` once it has come. One that is on its way is asked for again, as it may be
        another by now.
        """
        if not is_inside(path):
            then(f"{path} is not a file of the run's folder")
            return
        if self._link.ended:
            then("the machine is away")
            return
        self._awaited[path].append(then)
        self._link.send(FileWanted(path=path))

    def give_up(self) -> None:
        """Waits for nothing more: the machine is away."""
        awaited, self._awaited = self._awaited, defaultdict(list)
        for waiting in awaited.values():
            for then in waiting:
                then("the machine is away")

    def take(self, part: FilePart, ranks: list[int]) -> None:
        """Takes the next part of a file that was asked for, or of what one of `ranks` has printed. Raises OSError."""
        unasked = {name for rank in ranks for name in (f"worker-{rank}.log", f"worker-{rank}-traceback.txt")}
        if part.path not in self._awaited and part.path not in unasked:
            return
        path = self._run.path / part.path
        coming = path.with_name(f".{path.name}.part")
        if part.path not in self._digests:
            self._digests[part.path] = hashlib.sha256()
            paths.make_folder(path.parent)
            coming.unlink(missing_ok=True)
        why = part.error
        try:
            with open(coming, "ab", opener=paths.for_the_user_alone) as stream:
                stream.write(part.data)
                self._digests[part.path].update(part.data)
                if part.last and not why:
                    os.fsync(stream.fileno())
        except OSError as error:
            why = error.strerror or str(error)
        if not part.last:
            return
        digest = self._digests.pop(part.path)
        if not why and digest.hexdigest() != part.sha256:
            why = "it did not arrive as it was sent"
        if not why:
            if part.path == LAST:
                self._keep_older(path)
            os.replace(coming, path)
        coming.unlink(missing_ok=True)
        waiting = self._awaited.get(part.path, [])
        if waiting:
            then = waiting.pop(0)
            if not waiting:
                del self._awaited[part.path]
            then(why)

    def saved(self, event: CheckpointSaved) -> None:
        """Notes a checkpoint that is about to be asked for."""
        if event.kind == "last":
            self._saved.append((event.epoch, event.step))

    def _keep_older(self, last: Path) -> None:
        """Keeps the last.pt that is about to be replaced as an older checkpoint, by where it was written."""
        before, self._last = self._last, self._saved.popleft() if self._saved else None
        if not self._keep:
            return
        if before is not None and last.exists():
            with suppress(OSError):
                os.link(last, last.with_name(f"epoch-{before[0]}-step-{before[1]}.pt"))
        older = {int(m["step"]): path for path in last.parent.iterdir() if (m := OLDER_CHECKPOINT.fullmatch(path.name))}
        for step in sorted(older)[: -self._keep]:
            older[step].unlink(missing_ok=True)


def is_inside(path: str) -> bool:
    """Whether a path that another machine tells of stays in the run's folder."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not PurePosixPath(path).is_absolute() and ".." not in parts and "\0" not in path
