"""A job's queries: how they are planned, taken up, worded, shared, replaced, dropped and stopped."""
