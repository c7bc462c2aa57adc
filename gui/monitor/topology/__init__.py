"""How the GPUs of a host are connected."""
