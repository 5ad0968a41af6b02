"""What runs in Spark's tasks: the step of a slot, from Arrow batches to state, results and a report."""
