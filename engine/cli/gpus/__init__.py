"""``footplate gpus``: show this machine's devices to users and other programs.

command      options, and the output of each snapshot table        one snapshot for users, with `details` and `remarks`
layout       tables drawn by rich, shown on the terminal by `screen` csv_lines    a CSV line for each GPU in a snapshot
prometheus   a snapshot in Prometheus' text format, served by `metrics` on the loopback address
"""
