"""A query spread over simulated machines whose groups move: the protocols' machines with real boxes and real rows.

One manager, machines with split operators that read the streams, processors with a box each over their groups, and a
sink that puts results in order. Steps are written to disk with all they changed, so machines may crash at any time;
links may lose, double, delay and reorder.
"""
