"""What arrives: rows checked and ordered, times believed, streams waited for."""
