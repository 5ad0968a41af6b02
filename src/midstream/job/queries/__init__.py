"""A job's queries: how they run, and how they are shared, replaced, dropped and stopped."""
