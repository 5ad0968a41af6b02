"""A job's slots: which groups they have, and how state moves between them."""
