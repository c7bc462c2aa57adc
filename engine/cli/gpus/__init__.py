"""``footplate gpus``: show this machine's devices to users and other programs.

command      options, and the output of each snapshot
table        one snapshot for users, with `details` and `remarks`
layout       tables drawn by rich, on the terminal of `screen`
csv_lines    a line per GPU and snapshot
prometheus   a snapshot in Prometheus' text format, served by `metrics` on the loopback address
"""
