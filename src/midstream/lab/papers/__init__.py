"""The papers' machines as printed: what jobs do between two batches by naming state, done here by messages.

A commit is atomic, so a job needs no message that can be lost. These are the protocols that do without one, kept whole
and run on simulated machines, so that what the papers measured can be measured again. No product code imports them.
"""
