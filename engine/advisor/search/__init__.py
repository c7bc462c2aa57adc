"""Hyperparameter search, which ``python -m engine.advisor.search FOLDER`` drives.

`driver` starts and stops the runs and saves the state. `study` chooses settings with Optuna. `trial_handle` reads the
log of a trial's run. `confirming` chooses the trials to repeat with other seeds, and the best trial.
"""
