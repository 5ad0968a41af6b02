"""Migration: taking a running query from one plan to another while results keep coming."""
