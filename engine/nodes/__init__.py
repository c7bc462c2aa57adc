"""What a run needs on each of several machines: torch's elastic agent, started by the run's supervisor over ssh."""
