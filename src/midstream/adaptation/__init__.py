"""Adaptation: notice that the streams have changed, decide whether another plan is worth a migration, and look back."""
