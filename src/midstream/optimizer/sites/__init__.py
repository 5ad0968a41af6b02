"""Where streams live, and what sending rows between sites costs."""
