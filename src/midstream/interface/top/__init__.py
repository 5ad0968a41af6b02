"""A job as a terminal shows it while it runs."""
