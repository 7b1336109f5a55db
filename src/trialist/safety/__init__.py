"""Safety: was it safe while it succeeded? Signal temporal logic over recorded trajectories."""
