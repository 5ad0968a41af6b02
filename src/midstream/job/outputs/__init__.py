"""What a job gives: results, what it says of itself, and who is told."""
