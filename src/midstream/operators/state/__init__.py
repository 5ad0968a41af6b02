"""State: immutable segments sorted by key hash, found by what they hold rather than by who holds them."""
