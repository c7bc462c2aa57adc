"""Exceptions that decoding damaged or malicious bytes raises."""

from __future__ import annotations

import msgspec

NOT_DECODED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""All exceptions that msgspec's decoders raise. For invalid UTF-8, it is Python's own exception."""
