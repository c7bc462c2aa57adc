"""``footplate gpus``: this machine's devices, for people and for other programs.

command      the options, and what is done with each snapshot
table        one snapshot for people; `details` and `processes` are parts of it, `remarks` what a GPU gives cause for
layout       tables, drawn by rich, on the terminal of `screen`
csv_lines    a line per GPU and snapshot
prometheus   a snapshot in Prometheus' text format, which `metrics` serves on the loopback address
"""
