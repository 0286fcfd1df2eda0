"""What the OpIndex paper claims."""

from __future__ import annotations

from dibs.papers.experiments.claims import (
    Check,
    Claim,
    alike,
    below,
    best,
    changes_more,
    falls,
    less,
    order_of_growth,
    rises,
    steady,
)

PAPER = "OpIndex"
ALL = ("k-index", "BE-Tree", "OpIndex-BS", "OpIndex")
OTHERS = ("k-index", "BE-Tree")
PUBLISHED = "BE-Tree"


def _claim(name: str, section: str, statement: str, *checks: Check) -> Claim:
    return Claim(f"opindex-{name}", PAPER, section, statement, checks)


CLAIMS = (
    _claim(
        "many-attributes",
        "1, figure 1",
        "From 20,000 to 60,000 attributes an inverted index (k-index) is built much faster than BE-Tree and its "
        "matching time grows less.",
        less("opindex-1", "k-index", "BE-Tree", "build_s", times=10),
        changes_more("opindex-1", ["BE-Tree"], ["k-index"]),
    ),
    _claim(
        "many-attributes-best",
        "1, figure 1",
        "With many attributes OpIndex matches faster than both and is built faster.",
        best("opindex-1", "OpIndex", among=OTHERS),
        best("opindex-1", "OpIndex", "build_s", among=OTHERS),
    ),
    _claim(
        "capacity",
        "7.2, figure 7",
        "Raising BE-Tree's node capacity from 5 to 150 makes it 15 times as fast to build and 15 times as slow to "
        "match.",
        falls("opindex-7", "BE-Tree", measure="build_s", times=15, to=4),
        rises("opindex-7", "BE-Tree", times=15, to=4),
    ),
    _claim(
        "memory",
        "7.3.1, figure 8(a)",
        "BE-Tree takes about twice the memory of OpIndex, k-index seven times as much.",
        less("opindex-8a", "OpIndex", "BE-Tree", "bytes", times=2),
        less("opindex-8a", "OpIndex", "k-index", "bytes", times=7),
    ),
    _claim(
        "memory-values",
        "7.3.1, figure 8(b)",
        "The number of values per attribute does not change OpIndex's memory; it makes BE-Tree ten times as large and "
        "k-index too large to run.",
        steady("opindex-8b", "OpIndex", measure="bytes"),
        rises("opindex-8b", "BE-Tree", measure="bytes", times=10),
        rises("opindex-8b", "k-index", measure="bytes", by=5),
    ),
    _claim(
        "insertion",
        "7.3.2, figure 9",
        "Insertion into OpIndex takes a thousandth of BE-Tree's time and a tenth of k-index's.",
        less("opindex-9a", "OpIndex", PUBLISHED, "build_s", times=1_000),
        less("opindex-9a", "OpIndex", "k-index", "build_s", times=10),
        less("opindex-9a", "OpIndex", "BE-Tree", "insert_us", times=1_000),
        less("opindex-9b", "OpIndex", "k-index", "build_s", times=10),
        less("opindex-9b", "OpIndex", "BE-Tree", "insert_us", times=1_000),
    ),
    _claim(
        "insertion-bs",
        "7.3.2, figure 9",
        "Building OpIndex takes slightly longer than building it without directories and signatures (OpIndex-BS).",
        less("opindex-9a", "OpIndex-BS", "OpIndex", "build_s"),
        alike("opindex-9a", "OpIndex-BS", "OpIndex", "build_s"),
    ),
    _claim(
        "number",
        "7.3.3, figure 10(a)",
        "OpIndex matches fastest at any number of subscriptions, ten times as fast as k-index.",
        best("opindex-10a", "OpIndex"),
        less("opindex-10a", "OpIndex", "k-index", times=10),
    ),
    _claim(
        "number-bs",
        "7.3.3, figure 10(a)",
        "Directories and signatures make OpIndex grow less with the number of subscriptions than binary search does.",
        changes_more("opindex-10a", ["OpIndex-BS"], ["OpIndex"]),
        less("opindex-10a", "OpIndex", "OpIndex-BS"),
    ),
    _claim(
        "size",
        "7.3.4, figure 10(b)",
        "OpIndex suffers least from larger subscriptions; k-index grows in proportion, and BE-Tree gets much slower "
        "at 20.",
        changes_more("opindex-10b", OTHERS, ["OpIndex"]),
        order_of_growth("opindex-10b", "k-index", at_least=0.7, at_most=1.3),
        rises("opindex-10b", "BE-Tree", by=1.5),
    ),
    _claim(
        "event-size",
        "7.3.5, figure 10(c)",
        "All take longer for larger events, OpIndex and BE-Tree alike; OpIndex-BS grows more than OpIndex, and "
        "k-index is the slowest.",
        rises("opindex-10c", *ALL),
        changes_more("opindex-10c", ["OpIndex-BS"], ["OpIndex"]),
        best("opindex-10c", "OpIndex", among=OTHERS),
        less("opindex-10c", "BE-Tree", "k-index"),
        less("opindex-10c", "OpIndex-BS", "k-index"),
    ),
    _claim(
        "equality",
        "7.3.6, figure 10(d)",
        "All get faster with the share of equalities, k-index and BE-Tree more than OpIndex.",
        falls("opindex-10d", *ALL, by=1.1),
        changes_more("opindex-10d", OTHERS, ["OpIndex"]),
    ),
    _claim(
        "values",
        "7.3.7, figure 10(e)",
        "The number of values per attribute does not change the matching time of any of them.",
        steady("opindex-10e", *ALL),
    ),
    _claim(
        "zipf",
        "7.3.8, figure 10(f)",
        "OpIndex is the fastest at any skew of attributes and values, and suffers less from it than k-index.",
        best("opindex-10f", "OpIndex"),
        changes_more("opindex-10f", ["k-index"], ["OpIndex"]),
    ),
    _claim(
        "aol-build",
        "7.4, figures 11(a) and 11(b)",
        "On keywords k-index is built about as fast as OpIndex with = and more slowly with intervals; BE-Tree takes "
        "two orders of magnitude longer.",
        alike("opindex-11a", "k-index", "OpIndex", "build_s", within=2),
        less("opindex-11b", "OpIndex", "k-index", "build_s"),
        less("opindex-11a", "OpIndex", "BE-Tree", "build_s", times=100),
    ),
    _claim(
        "aol-tweets",
        "7.4, figures 11(c) and 11(d)",
        "On short documents OpIndex is 4 to 9 times as fast as BE-Tree and a hundred times as fast as k-index.",
        less("opindex-11c", "OpIndex", "BE-Tree", times=4),
        less("opindex-11c", "OpIndex", "k-index", times=100),
        less("opindex-11d", "OpIndex", "BE-Tree", times=4),
        less("opindex-11d", "OpIndex", "k-index", times=100),
    ),
    _claim(
        "aol-articles",
        "7.4, figures 11(e) and 11(f)",
        "On documents of more than a hundred words OpIndex is still the fastest.",
        best("opindex-11e", "OpIndex", among=OTHERS),
        best("opindex-11f", "OpIndex", among=OTHERS),
    ),
    _claim(
        "ebay-build",
        "7.5, figure 12",
        "On products k-index is built about as fast as OpIndex, and both orders of magnitude faster than BE-Tree.",
        alike("opindex-12a", "k-index", "OpIndex", "build_s", within=2),
        less("opindex-12a", "OpIndex", "BE-Tree", "build_s", times=100),
        alike("opindex-12b", "k-index", "OpIndex", "build_s", within=2),
        less("opindex-12b", "OpIndex", "BE-Tree", "build_s", times=100),
    ),
    _claim(
        "ebay",
        "7.5, figure 12",
        "On products OpIndex matches fastest, whatever the number and the size of subscriptions, and its lead over "
        "BE-Tree grows with their size.",
        best("opindex-12c", "OpIndex", among=OTHERS),
        best("opindex-12d", "OpIndex", among=OTHERS),
        best("opindex-12e", "OpIndex", among=OTHERS),
        best("opindex-12f", "OpIndex", among=OTHERS),
        changes_more("opindex-12f", ["BE-Tree"], ["OpIndex"]),
    ),
    _claim(
        "dnf",
        "7.6, figure 13(a)",
        "With more subscriptions, matching in disjunctive normal form grows less than in conjunctive normal form.",
        changes_more("opindex-13a", ["CNF"], ["DNF"]),
    ),
    _claim(
        "cnf",
        "7.6, figure 13(b)",
        "With more clauses, it is the other way round.",
        changes_more("opindex-13b", ["DNF"], ["CNF"]),
    ),
    _claim(
        "prefix",
        "7.7, figure 14(a)",
        "More prefix operators take more time, and a matching of nothing but prefixes still takes less than 0.4 ms per "
        "event.",
        rises("opindex-14a", "OpIndex", by=1.1),
        below("opindex-14a", "OpIndex", 400.0),
    ),
    _claim(
        "prefix-length",
        "7.7, figure 14(b)",
        "The length of prefixes does not change the time, or lowers it a little.",
        steady("opindex-14b", "OpIndex"),
    ),
)
