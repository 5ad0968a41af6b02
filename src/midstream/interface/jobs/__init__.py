"""Jobs as files: what to read, what to ask, where results go; and talking to a job that runs."""
