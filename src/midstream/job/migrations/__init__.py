"""Migrations of a job's queries: wished for, begun, verified, cancelled."""
