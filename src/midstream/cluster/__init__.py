"""Clusters, where a job's steps run: this process, Spark, or simulated machines."""
