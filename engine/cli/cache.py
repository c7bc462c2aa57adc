"""``footplate cache``: list, limit and remove cached images."""

from __future__ import annotations

import argparse
import sys
import time

import msgspec

from engine.cli.terminal import COMPLETED, format_table, print_error, print_lines
from engine.contract.protocol import ENCODE
from engine.data.cache import cache_space
from engine.data.cache.cache_space import CachedSet, CacheRefused
from engine.system.cache_limit import images_folder
from engine.system.format import duration, size


def add_cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.add_argument("--clear", action="store_true", help="remove everything not in use by a run")
    parser.add_argument("--limit", metavar="GIB", type=float, help="set the size limit; 0 disables the cache")
    parser.set_defaults(command=cache)


def cache(options: argparse.Namespace) -> int:
    """Apply `--limit` and `--clear` to the cache of decoded images, and list the cached datasets. Returns an exit code."""
    try:
        if options.limit is not None:
            if not 0 <= options.limit < 1e6:
                raise CacheRefused(f"--limit {options.limit} is not a number of GiB")
            cache_space.set_limit(int(options.limit * cache_space.GIB))
        if options.clear:
            removed, remaining = cache_space.clear()
            in_use = f" {remaining} remain, in use by runs." if remaining else ""
            print_lines(f"Removed {removed}.{in_use}", to=sys.stderr)
        limit = cache_space.limit_bytes()
    except CacheRefused as refused:
        return print_error(str(refused))
    sets = cache_space.list_sets()
    if options.json:
        print_lines(*(ENCODE.encode(_describe_cached_set(cached)).decode() for cached in sets))
    else:
        if sets:
            head = ("DATASET", "IMAGES", "OF", "ON DISK", "LAST USED")
            print_lines(*format_table(head, [_format_row(cached) for cached in reversed(sets)]))
        used = size(sum(cached.used_bytes for cached in sets))
        print_lines(f"{used} of at most {size(limit)} in {images_folder()}.")
    return COMPLETED


def _count_images(cached: CachedSet) -> int:
    """Return the number of decoded images that are cached for a dataset."""
    from engine.data.cache.cached_images import count_filled_rows

    return count_filled_rows(cached.folder)


def _describe_cached_set(cached: CachedSet) -> dict[str, object]:
    """Return the facts that `--json` prints about the cached images of a dataset."""
    return msgspec.to_builtins(cached.about) | {
        "pictures": _count_images(cached),
        "bytes": cached.used_bytes,
        "last_used": cached.used_at,
    }


def _format_row(cached: CachedSet) -> tuple[str, ...]:
    """Return the cells of a cached dataset in the printed table."""
    about = cached.about
    kind = f"{about.size} px, {'gray' if about.channels == 1 else 'color'}"
    ago = f"{duration(time.time() - cached.used_at)} ago"
    return about.dataset, f"{_count_images(cached):,}", kind, size(cached.used_bytes), ago
