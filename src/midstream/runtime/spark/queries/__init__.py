"""The queries of a session: how they come, change and go, and what can be said of them."""
