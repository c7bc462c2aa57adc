"""``footplate gpus``: show this machine's devices to users and other programs.

`command` has the options and prints the snapshots. `table` formats one for users, with `details` and `remarks`, in
tables drawn by `layout` and shown by `screen`. `csv_lines` formats it as CSV, and `prometheus` in Prometheus' text
format, which `metrics` serves on the loopback address.
"""
