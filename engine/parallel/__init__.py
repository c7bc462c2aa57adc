"""Layout of a job's ranks and cut of its model: pure arithmetic, without torch and Qt."""
