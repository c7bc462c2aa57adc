"""Read Parquet files with the optional package pyarrow. Torch-free."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from engine.data.decoding.reading import refuse_unusable
from engine.data.memory_limit import allow_for_text
from engine.data.splits import printable
from engine.system.plugins import install_command
from engine.system.regular_files import UnusableFile, open_regular

_ROWS_AT_ONCE = 256


def is_installed() -> bool:
    """Return True if pyarrow is installed."""
    return importlib.util.find_spec("pyarrow") is not None


@contextmanager
def open_parquet(path: str) -> Iterator[Any]:
    """Open a Parquet file as a `pyarrow.parquet.ParquetFile`.

    Raises OSError, or UnusableFile if the file is damaged or pyarrow is not installed.
    """
    if not is_installed():
        raise UnusableFile(path, "needs the package pyarrow", f"Install it: {install_command('huggingface')}")
    import pyarrow
    from pyarrow.parquet import ParquetFile

    with refuse_unusable(path):
        allow_for_text(path)
        try:
            with open_regular(path) as stream:
                yield ParquetFile(stream, pre_buffer=False)
        except UnusableFile:
            raise
        except pyarrow.ArrowMemoryError:
            raise MemoryError from None
        except (pyarrow.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # pyarrow raises OSError without a number, too
                raise
            reason = printable(str(error).splitlines()[0] if str(error) else "")[:200]
            raise UnusableFile(path, f"is not a readable Parquet file ({reason})", "Download it again.") from None
        except (ValueError, OverflowError) as error:  # a name that is not UTF-8, or a value that Python can't hold
            reason = printable(str(error))[:200]
            raise UnusableFile(path, f"has a column that can't be read ({reason})", "Leave the column out.") from None


def iterate_rows(path: str, columns: Sequence[str] | None = None) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a file as mappings from column names to values.

    `columns` are the columns to read, or None for all. Raises UnusableFile or OSError.
    """
    with open_parquet(path) as file:
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns, use_threads=False):
            for values in zip(*map(_to_python, batch.columns), strict=True):
                yield dict(zip(batch.schema.names, values, strict=True))


def _to_python(column: Any) -> list[Any]:
    """Convert a `pyarrow.Array` to Python objects. Dates and times become text if Python's types can't hold them."""
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):  # such as nanoseconds, or years after 9999
        values = column.cast("string").to_pylist()
    return values


def read_features(path: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the type of each column of a file, and the features that Hugging Face `datasets` has stored in it.

    A feature describes the content of a column, such as its class names.
    """
    with open_parquet(path) as file:
        schema = file.schema_arrow
        text = (schema.metadata or {}).get(b"huggingface", b"{}")
        types = {field.name: str(field.type) for field in schema}
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return types, {}
    for key in ("info", "features"):
        content = content.get(key) if isinstance(content, dict) else None
    return types, content if isinstance(content, dict) else {}
