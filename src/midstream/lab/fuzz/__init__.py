"""Random queries over random streams, run in random ways and judged by DuckDB; and damaged texts for the parser."""
