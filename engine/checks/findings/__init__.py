"""Findings: measured facts about a run, each with advice on the settings to change.

`run_end` finds improvements for a finished run, `bottleneck` the limit of a running one's speed, and `ranking` the
reason why one strategy trains faster than another. All are pure functions of numbers. Each threshold is defined next to
the rule that uses it, with its source.
"""
