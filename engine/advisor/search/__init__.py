"""The search over settings: `study` chooses settings by Optuna, `trial_log` reads what a trial's run has said,
`confirming` chooses which trials are trained again, and which is the best by that, `driver` starts and ends the runs
and keeps how the search stands. ``python -m engine.advisor.search FOLDER`` drives the search in that folder.
"""
