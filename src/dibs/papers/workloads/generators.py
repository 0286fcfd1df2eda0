"""The generators of workloads by name."""

from __future__ import annotations

from dibs.papers.workloads import boolean
from dibs.papers.workloads.begen import BEGen
from dibs.papers.workloads.blocks import Blocks
from dibs.papers.workloads.independent import Independent, NormalForms
from dibs.papers.workloads.intervals import Intervals, Profiles
from dibs.papers.workloads.products import Ads, Products
from dibs.papers.workloads.words import Keywords, Prefixes, QGrams

GENERATORS: dict[str, type[Blocks]] = {
    "begen": BEGen,
    "independent": Independent,
    "normal-forms": NormalForms,
    "keywords": Keywords,
    "products": Products,
    "qgrams": QGrams,
    "targeting": Ads,
    "prefixes": Prefixes,
    "profiles": Profiles,
    "intervals": Intervals,
}


def make_named(name: str, subscriptions: int, events: int, seed: int) -> Blocks | boolean.Workload:
    """One of GENERATORS, or a shape of `boolean`."""
    if name in GENERATORS:
        return GENERATORS[name](subscriptions, events, seed)
    return boolean.make_named(name, subscriptions, events, seed)
