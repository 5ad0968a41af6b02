"""Clusters: where a job's steps run."""
