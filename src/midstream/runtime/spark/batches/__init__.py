"""The driver's side of a batch: from manifest to manifest, with all that is decided between two of them."""
