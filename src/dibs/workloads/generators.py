"""The generators of the papers' workloads by name."""

from __future__ import annotations

from dibs.workloads.ads import Ads
from dibs.workloads.begen import BEGen
from dibs.workloads.blocks import Blocks
from dibs.workloads.independent import Independent, NormalForms
from dibs.workloads.intervals import Intervals, Profiles
from dibs.workloads.keywords import Keywords
from dibs.workloads.prefixes import Prefixes
from dibs.workloads.products import Products
from dibs.workloads.qgrams import QGrams

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
