"""What the papers of Tatbul and of Wang, Zhang and Kitsuregawa (PB+tree) claim."""

from __future__ import annotations

from dibs.papers.experiments.claims import Claim, best, less, order_of_growth, rank, rises, steady

INDEXED = ("Cluster", "Interval", "Hybrid", "Segment Tree", "Interval Tree")

TATBUL = (
    Claim(
        "tatbul-indexed",
        "Tatbul",
        "4.1.6, figure 7",
        "All five structures compare far less often than evaluating every predicate does.",
        tuple(less("tatbul-7", label, "naive", "predicates", times=10) for label in INDEXED),
    ),
    Claim(
        "tatbul-low-overlap",
        "Tatbul",
        "4.1.6, figure 7",
        "Where few profiles overlap, the interval and the cluster index are the best two.",
        (
            rank("tatbul-7", ["Interval", "Cluster", "Segment Tree"], "predicates"),
            best("tatbul-7", "Interval", "predicates"),
        ),
    ),
    Claim(
        "tatbul-hybrid-low",
        "Tatbul",
        "4.1.6, figure 7",
        "Where few profiles overlap, the hybrid index does not beat the cluster index.",
        (less("tatbul-7", "Cluster", "Hybrid", "predicates"),),
    ),
    Claim(
        "tatbul-overlap-steady",
        "Tatbul",
        "4.1.6, figure 8",
        "Overlap does not touch the interval index and the segment tree.",
        (steady("tatbul-8", "Interval", "Segment Tree", measure="predicates"),),
    ),
    Claim(
        "tatbul-overlap-hurts",
        "Tatbul",
        "4.1.6, figure 8",
        "Overlap hurts the cluster index and the interval tree badly.",
        (rises("tatbul-8", "Cluster", "Interval Tree", measure="predicates", by=2),),
    ),
    Claim(
        "tatbul-hybrid-high",
        "Tatbul",
        "4.1.6, figure 8",
        "The hybrid index overtakes the cluster index only at an overlap above nine tenths.",
        (
            less("tatbul-8", "Cluster", "Hybrid", "predicates", at=0),
            less("tatbul-8", "Cluster", "Hybrid", "predicates", at=4),
            less("tatbul-8", "Hybrid", "Cluster", "predicates"),
        ),
    ),
    Claim(
        "tatbul-interval-best",
        "Tatbul",
        "4.1.6",
        "The interval index compares least often of all, at any overlap.",
        (best("tatbul-7", "Interval", "predicates"), best("tatbul-8", "Interval", "predicates")),
    ),
    Claim(
        "tatbul-joins",
        "Tatbul",
        "4.3.1, figure 9",
        "Joins are answered in the logarithm of the number of stored documents.",
        tuple(order_of_growth("tatbul-9", label, at_most=0.35) for label in ("joins first", "constants first")),
    ),
    Claim(
        "tatbul-joins-indexed",
        "Tatbul",
        "4.3.1, figure 9",
        "With the index a document takes far less than every profile with every stored document.",
        tuple(less("tatbul-9", label, "no index", at=0) for label in ("joins first", "constants first")),
    ),
)
PBTREE = (
    Claim(
        "pbtree-space",
        "PB+tree",
        "5, table 1",
        "Space is linear in the number of predicates.",
        (order_of_growth("pbtree-table-1", "PB+tree", "PB+tree in memory", measure="bytes", at_most=1.1),),
    ),
    Claim(
        "pbtree-search",
        "PB+tree",
        "5, table 1",
        "Searching takes the logarithm of the number of predicates and the size of the output.",
        (order_of_growth("pbtree-table-1", "PB+tree", "PB+tree in memory", at_most=0.35),),
    ),
    Claim(
        "pbtree-updates",
        "PB+tree",
        "5",
        "With uniform constants insertion and deletion are near the logarithm, far from linear.",
        (
            order_of_growth("pbtree-table-1", "PB+tree in memory", measure="insert_us", at_most=0.35),
            order_of_growth("pbtree-table-1", "PB+tree in memory", measure="delete_us", at_most=0.35),
        ),
    ),
)
CLAIMS = TATBUL + PBTREE
