"""Distribution: which rows meet where, who owns which part of the key space, and how that changes."""
