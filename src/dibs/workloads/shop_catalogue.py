"""The shop's products as arrays, and the values that an attribute can have.

All values of all attributes stand in one list of texts, once as JSON and once as SQL. A product is a run of rows
(attribute, value), so texts of products and of subscriptions are put together by Arrow alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.lazy import lazy
from dibs.workloads import shop_words as words

CATEGORY_SKEW = 0.8  # category k is chosen in proportion to 1 / (k + 1) ** CATEGORY_SKEW
BRANDS_OF_A_CATEGORY = 30
PRICE_SPREAD = 0.12  # standard deviation of a category's prices, as a share of the list of prices


class Values(NamedTuple):
    """A run of the list of all values. Numbers ascend."""

    first: int
    size: int
    form: str  # text, category, number, flag, list or title


@dataclass(frozen=True)
class Catalogue:
    """Product p has the rows starts[p] : starts[p + 1]; a row is an attribute and the place of a value in the lists
    of texts. No product has an attribute twice."""

    names: list[str]
    values: list[Values]  # of each attribute
    json_texts: pa.StringArray  # for a title: the noun
    sql_texts: pa.StringArray
    starts: NDArray[np.int64]
    attribute: NDArray[np.int32]
    value: NDArray[np.int32]
    model: NDArray[np.int32]  # the number in the product's title

    @property
    def products(self) -> int:
        return len(self.starts) - 1

    @lazy
    def frequency(self) -> NDArray[np.int64]:
        return np.bincount(self.attribute, minlength=len(self.names))

    @lazy
    def by_attribute(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(starts, rows): the rows of attribute a are rows[starts[a] : starts[a + 1]]."""
        rows = np.argsort(self.attribute, kind="stable")
        return np.concatenate([[0], np.cumsum(self.frequency)]), rows

    @lazy
    def product(self) -> NDArray[np.int64]:
        """The product of each row."""
        return np.repeat(np.arange(self.products), np.diff(self.starts))

    def json(self, products: NDArray[np.int64]) -> pa.StringArray:
        """The products as JSON objects. Rows of a product are in the order of the attributes; the title is first."""
        size = (self.starts[products + 1] - self.starts[products]).astype(np.int64)
        ends = np.cumsum(size)
        row = np.arange(ends[-1] if len(ends) else 0) + np.repeat(self.starts[products] - (ends - size), size)
        keys = pa.array([f'"{name}":' for name in self.names], pa.string())
        texts = self.json_texts.take(pa.array(self.value[row]))
        is_title = self.attribute[row] == self.names.index("title")
        texts = pc.replace_with_mask(texts, pa.array(is_title), self._titles(products))
        fields = pc.binary_join_element_wise(keys.take(pa.array(self.attribute[row])), texts, "")
        lists = pa.ListArray.from_arrays(pa.array(np.concatenate([[0], ends]).astype(np.int32)), fields)
        return pc.binary_join_element_wise("{", pc.binary_join(lists, ","), "}", "")

    def _titles(self, products: NDArray[np.int64]) -> pa.StringArray:
        """ "Brand noun model", without a brand when the product has none."""
        noun = pc.utf8_slice_codeunits(self.json_texts.take(pa.array(self.value[self.starts[products]])), 1, -1)
        branded = self.by_attribute[1][slice(*self.by_attribute[0][self.names.index("brand") :][:2])]
        brand = np.full(self.products, -1, np.int64)
        brand[self.product[branded]] = self.value[branded]
        brand = brand[products]
        names = pc.utf8_slice_codeunits(self.json_texts.take(pa.array(np.maximum(brand, 0))), 1, -1)
        names = pc.if_else(pa.array(brand >= 0), pc.binary_join_element_wise(names, "", " "), "")
        model = pa.array(self.model[products]).cast(pa.string())
        return pc.binary_join_element_wise('"', names, noun, " ", model, '"', "")


def make_catalogue(random: np.random.Generator, products: int) -> Catalogue:
    categories = words.categories()
    values, json_texts, sql_texts = _all_values(categories)
    attributes = {name: values[of] for name, of, _ in words.COMMON}
    for category in categories:
        attributes |= {name: values[of] for name, of in category.attributes}
    number = {name: k for k, name in enumerate(attributes)}

    popularity = 1 / np.arange(1, len(categories) + 1) ** CATEGORY_SKEW
    category_of = random.choice(len(categories), products, p=popularity / popularity.sum())
    talkative = random.uniform(0.3, 1.7, products)  # some sellers fill in everything, some next to nothing
    share = np.array([share for _, _, share in words.COMMON])
    wanted = np.where(share < 1, share * talkative[:, None], 1)
    product, place = np.nonzero(random.random(wanted.shape) < wanted)
    rows = [(product, place)]  # the attributes that any product can have are numbered first
    for k, category in enumerate(categories):
        members = np.flatnonzero(category_of == k)
        share = 0.75 / np.arange(1, len(category.attributes) + 1) ** 0.8
        drawn = random.random((len(members), len(share)))
        product, place = np.nonzero(drawn < share * talkative[members, None])
        own = np.array([number[name] for name, _ in category.attributes])
        rows.append((members[product], own[place]))
    product, attribute = (np.concatenate(column) for column in zip(*rows, strict=True))
    order = np.lexsort((attribute, product))
    product, attribute = product[order], attribute[order].astype(np.int32)

    return Catalogue(
        names=list(attributes),
        values=list(attributes.values()),
        json_texts=pa.array(json_texts),
        sql_texts=pa.array(sql_texts),
        starts=np.searchsorted(product, np.arange(products + 1)),
        attribute=attribute,
        value=_draw_values(random, categories, list(attributes.items()), attribute, category_of[product]),
        model=random.integers(100, 1000, products).astype(np.int32),
    )


def _draw_values(
    random: np.random.Generator,
    categories: list[words.Category],
    attributes: list[tuple[str, Values]],
    attribute: NDArray[np.int32],
    category: NDArray[np.int64],
) -> NDArray[np.int32]:
    """A value for each row: of words the first in the list most often, of numbers the middle ones."""
    first = np.array([values.first for _, values in attributes])[attribute]
    count = np.array([values.size for _, values in attributes])[attribute]
    numeric = np.array([values.form == "number" for _, values in attributes])[attribute]
    flag = np.array([values.form == "flag" for _, values in attributes])[attribute]
    u, v = random.random(len(attribute)), random.random(len(attribute))
    place = np.select([numeric, flag], [(u + v) / 2 * count, (u < 0.7) * 1], u * u * count).astype(np.int64)

    number = {name: k for k, (name, _) in enumerate(attributes)}
    is_title, is_category, is_price, is_brand = (
        attribute == number[name] for name in ("title", "category", "price", "brand")
    )
    nouns = np.array([len(c.nouns) for c in categories])
    place[is_title] = ((np.cumsum(nouns) - nouns)[category] + (v * nouns[category]).astype(np.int64))[is_title]
    place[is_category] = category[is_category]
    own_brand = category * 29 + (u * u * BRANDS_OF_A_CATEGORY).astype(np.int64)
    place[is_brand] = (own_brand % count)[is_brand]
    usual = 0.25 + 0.5 * (category * 37 % len(categories)) / len(categories)
    share = usual[is_price] + PRICE_SPREAD * random.standard_normal(int(is_price.sum()))
    place[is_price] = (np.clip(share, 0, 0.999) * count[is_price]).astype(np.int64)
    return (first + place).astype(np.int32)


def _all_values(categories: list[words.Category]) -> tuple[dict[str, Values], list[str], list[str]]:
    """The runs by name, and the texts of all values as JSON and as SQL."""
    runs: dict[str, Values] = {}
    json_texts: list[str] = []
    sql_texts: list[str] = []

    def add(name: str, form: str, values: list[Any], constants: list[Any]) -> None:
        runs[name] = Values(len(json_texts), len(values), form)
        json_texts.extend(orjson.dumps(value).decode() for value in values)
        sql_texts.extend(_sql(constant) for constant in constants)

    lists = {name: text.split("," if "," in text else " ") for name, text in words.TEXT_LISTS.items()}
    lists |= {"brand": words.brands(), "category": [category.name for category in categories]}
    for name, texts in lists.items():
        add(name, "category" if name == "category" else "text", texts, texts)
    for name, (low, high, count, decimals) in words.NUMBERS.items():
        numbers = np.unique(np.round(np.geomspace(low, high, count), decimals)).tolist()
        if name == "euros":
            numbers = [round(n - 0.01, 2) for n in numbers]
        elif decimals == 0:
            numbers = [int(n) for n in numbers]
        add(name, "number", numbers, numbers)
    add("flag", "flag", [False, True], [False, True])
    nouns = [noun for category in categories for noun in category.nouns]
    add("title", "title", nouns, nouns)
    some = words.FEATURES.split()
    several = [[some[k], some[(k + step) % len(some)]] for step in (1, 3, 7) for k in range(len(some))]
    features = [[feature] for feature in some] + several + [[*pair, "sale"] for pair in several[::4]]
    add("features", "list", features, [feature[-1] for feature in features])
    return runs, json_texts, sql_texts


def _sql(constant: str | float | bool) -> str:
    if isinstance(constant, str):
        return "'" + constant.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return str(constant).upper()
