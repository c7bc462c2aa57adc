"""From the bytes of files to arrays."""
