"""The demonstration: generated streams, a plan changed on the way, a view of it, and an independent check."""
