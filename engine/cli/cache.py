"""``footplate cache``: what lies in the cache of decoded images, how much it may hold, and away with it."""

from __future__ import annotations

import argparse
import sys
import time

import msgspec

from engine.cli.exit_codes import BAD_REQUEST, COMPLETED
from engine.cli.table import table
from engine.cli.terminal import say
from engine.contract.protocol import ENCODE
from engine.data.cache import cache_space
from engine.data.cache.cache_space import CachedSet, CacheRefused
from engine.system.format import duration, size


def add_cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.add_argument("--clear", action="store_true", help="remove everything that no run is using")
    parser.add_argument("--limit", metavar="GIB", type=float, help="limit its size from now on; 0 keeps nothing")
    parser.set_defaults(command=cache)


def cache(options: argparse.Namespace) -> int:
    """Changes what is asked for, then lists what is there."""
    try:
        if options.limit is not None:
            if not 0 <= options.limit < 1e6:
                raise CacheRefused(f"--limit {options.limit} is not a number of GiB")
            cache_space.set_limit(int(options.limit * cache_space.GIB))
        if options.clear:
            removed, left = cache_space.clear()
            say(f"Removed {removed}." + (f" {left} remain, in use by runs." if left else ""), to=sys.stderr)
        limit = cache_space.limit_bytes()
    except CacheRefused as refused:
        say(f"footplate: {refused}", to=sys.stderr)
        return BAD_REQUEST
    sets = cache_space.list_sets()
    if options.json:
        for one in sets:
            say(ENCODE.encode(_values(one)).decode())
    else:
        if sets:
            head = ("DATASET", "IMAGES", "OF", "ON DISK", "LAST USED")
            say(*table(head, [_row(one) for one in reversed(sets)]))
        used = size(sum(one.used_bytes for one in sets))
        say(f"{used} of at most {size(limit)} in {cache_space.root()}.")
    return COMPLETED


def _images(one: CachedSet) -> int:
    from engine.data.cache.cached_images import filled_rows

    return filled_rows(one.folder)


def _values(one: CachedSet) -> dict[str, object]:
    return msgspec.to_builtins(one.about) | {
        "pictures": _images(one),
        "bytes": one.used_bytes,
        "last_used": one.used_at,
    }


def _row(one: CachedSet) -> tuple[str, ...]:
    about = one.about
    each = f"{about.size} px, {'grey' if about.channels == 1 else 'colour'}"
    ago = f"{duration(time.time() - one.used_at)} ago"
    return about.dataset, f"{_images(one):,}", each, size(one.used_bytes), ago
