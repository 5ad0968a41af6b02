"""The execution paper's machine in virtual time: arcs, registers per operator, one row at a time."""
