"""Errors of decoding damaged or hostile bytes."""

from __future__ import annotations

import msgspec

NOT_DECODED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""All errors that msgspec's decoders raise; for invalid UTF-8 it is Python's own."""
