"""What a job gives: results and how they are delivered, and the progress of its batches."""
