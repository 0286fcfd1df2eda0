"""Workloads to test and measure with: deterministic by seed, made as Arrow tables.

boolean      integer workloads of chosen size, skew and match rate, in the manner of BEGen
joins        offers, and joins over those before

The generators of the papers, by blocks of rows (`blocks.py`), in one process or on Spark (`spark/workloads.py`):

begen        BEGen: base and derived expressions, match probability, operator classes, skews (BE-Tree, PS-Tree); from
             uniform to Zipf and back (BE-Tree)
independent  OpIndex's Table 3, and CNF and DNF of the same parts
intervals    profiles of a given overlap (Tatbul), intervals and points (PS-Tree's Table 3)
products     products with skewed attributes (OpIndex's eBay); advertisement targeting (PS-Tree)
words        queries against tweets and articles (OpIndex), split words (PS-Tree); titles and authors as 3-grams
             (BE-Tree's DBLP); prefix predicates (OpIndex)
"""
