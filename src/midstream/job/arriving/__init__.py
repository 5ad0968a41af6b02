"""What arrives: the streams of a batch and their routes, which times are believed, which streams are waited for."""
