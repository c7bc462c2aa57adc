"""``footplate gpus``: show this machine's devices to users and other programs.

`command` parses the options and prints snapshots of the devices. There are three formats for a snapshot: `table` shows
it to users (with the help of `details`, `remarks`, `layout` and `screen`), `csv_lines` writes CSV, and `prometheus`
writes Prometheus' text format, which `metrics` serves on the loopback address.
"""
