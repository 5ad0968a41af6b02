"""Routed joins as plans: their text, which probes they may make, what they cost and which is best in slots."""
