"""Child processes, mostly the workers of a run: how they are started, watched and shut down."""
