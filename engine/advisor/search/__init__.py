"""Hyperparameter search, driven by ``python -m engine.advisor.search FOLDER``.

`driver` starts and stops the runs and saves the state, `study` chooses settings with Optuna, `trial_handle` reads the
log of a trial's run, and `confirming` chooses the trials to repeat with other seeds and the winner.
"""
