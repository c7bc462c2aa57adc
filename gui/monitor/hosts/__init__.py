"""Which hosts are watched, and what is wrong with one."""
