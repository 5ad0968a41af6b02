"""The optimizer: which plan computes a query, and why."""
