"""How the code of users' functions is described for their fingerprints."""
