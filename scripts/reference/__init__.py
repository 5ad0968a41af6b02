"""Reference pages that are written from the program: `python -m scripts.reference` writes them anew."""
