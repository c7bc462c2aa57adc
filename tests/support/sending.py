"""Measurement of a network's speed: `python sending.py ADDRESS BYTES ROUNDS [--first]`.

Two of these processes exchange BYTES in both directions in each round, like an all-reduce of two ranks. The first one
listens. Each prints the median rate in bits per second.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import sys
import threading
import time

PORT = 29_555
PATIENCE_S = 60.0


def connect(address: str, first: bool) -> socket.socket:
    """Connect to the other process. If `first`, wait for its connection to `address`, otherwise connect to `address`.

    Raises:
        OSError: The connection fails.
    """
    if first:
        with socket.create_server((address, PORT)) as listener:
            listener.settimeout(PATIENCE_S)
            return listener.accept()[0]
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection((address, PORT))
        time.sleep(0.05)
    raise TimeoutError(f"nobody listens at {address}")


def receive(wire: socket.socket, nbytes: int) -> None:
    left = nbytes
    while left:
        left -= len(wire.recv(min(left, 1 << 20)))


def main() -> None:
    address, nbytes, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rates = []
    with connect(address, "--first" in sys.argv) as wire:
        wire.settimeout(PATIENCE_S)
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(rounds):
            start = time.perf_counter()
            receiving = threading.Thread(target=receive, args=(wire, nbytes))
            receiving.start()
            wire.sendall(bytes(nbytes))
            receiving.join()
            rates.append(8 * nbytes / (time.perf_counter() - start))
    print(statistics.median(rates))


if __name__ == "__main__":
    main()
