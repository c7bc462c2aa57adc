"""``python -m engine.nodes``: this machine's part in a run whose supervisor is on it, too."""

from __future__ import annotations

from engine.nodes.node import serve

if __name__ == "__main__":
    serve()
