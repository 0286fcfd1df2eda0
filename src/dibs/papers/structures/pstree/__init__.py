"""PS-Tree, PSTBloom and PSTHash."""
