"""Runtimes: where boxes live. `embedded` runs in this process, `spark` on Structured Streaming."""
