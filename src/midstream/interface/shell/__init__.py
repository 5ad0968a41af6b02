"""A shell for queries over files: streams have names, queries end with a semicolon, results come as they are found."""
