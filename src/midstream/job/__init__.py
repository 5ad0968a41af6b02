"""A job: from manifest to manifest, with all that is decided between two batches."""
