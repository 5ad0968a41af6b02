"""What runs in a slot: its step, from Arrow batches to state, results and a report."""
