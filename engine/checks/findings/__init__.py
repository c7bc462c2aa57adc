"""Findings: measured facts about a run, each with advice on the settings to change.

`run_end` finds what a finished run could do better, `bottleneck` what limits the speed of a running one, and `ranking`
why one strategy trains faster than another. All are pure functions over figures. A threshold is named next to the rule
that uses it, with its source.
"""
