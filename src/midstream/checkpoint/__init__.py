"""The checkpoint: a job's state, results and progress in files that outlive it.

Data files are immutable and carry names that are never used again; one manifest per batch names those that count. A
batch is done when its manifest exists, and everything else is either named by a manifest or rubbish.
"""
