"""Migrations of a job's queries: begun, chosen, counted, verified; in all slots or in some."""
