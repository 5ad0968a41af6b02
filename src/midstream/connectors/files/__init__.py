"""Folders of files as streams: what a file is, which files there are, and what their bytes mean, on every cluster."""
