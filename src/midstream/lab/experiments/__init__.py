"""The papers' experiments, run anew: each gives a report whose verdicts are computed from the run."""
