"""What lies outside of a job: where rows come from, and where results go."""
