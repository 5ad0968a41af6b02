"""Clusters, where a job's steps run: this process or Spark (simulated machines are in `lab`)."""
