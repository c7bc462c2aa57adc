"""Check of torch's archives before they are loaded.

A few megabytes of compressed data could unpack to any amount of memory.
"""

from __future__ import annotations

import os
import zipfile
from typing import IO

_ZIP_START = b"PK\x03\x04"


class PackedArchiveError(ValueError):
    """Raised when the members of an archive would need more memory than the file has bytes.

    torch.save does not write such archives.
    """


def refuse_packed(stream: IO[bytes]) -> None:
    """Raise PackedArchiveError if unpacking a zip archive could need more memory than its file has bytes.

    All members must be stored uncompressed and fit into the file together. Files that are not zip archives are
    accepted. The stream is rewound afterwards. Also raises RuntimeError for a damaged archive, and OSError.
    """
    length = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    if stream.read(len(_ZIP_START)) == _ZIP_START:
        try:
            with zipfile.ZipFile(stream) as archive:
                members = archive.infolist()
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise RuntimeError(f"the archive is incomplete ({error})") from None
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise PackedArchiveError("it is compressed, which torch.save never does")
        if sum(member.file_size for member in members) > length:  # members may overlap in the file
            raise PackedArchiveError("its parts are larger than the file")
    stream.seek(0)
