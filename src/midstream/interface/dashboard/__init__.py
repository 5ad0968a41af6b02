"""The dashboard: a job as a page, live, read from its checkpoint alone.

It reads what manifests say and asks the job through its checkpoint like any other process, so it works for a running,
a stopped and a foreign job alike, and can never disturb a batch.
"""
