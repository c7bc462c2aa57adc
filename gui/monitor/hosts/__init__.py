"""Management of the watched hosts, and their errors."""
