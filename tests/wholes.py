"""Conditions on arrays as wholes, worked out by hand: for which events each is TRUE, and FALSE."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

EVENTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "null": {"a": None, "s": None},
    "empty": {"a": [], "items": []},
    "one": {"a": 7, "s": "x"},
    "ones": {"a": [7], "b": 1},
    "three": {"a": [1, 5, 9], "b": 5},
    "holes": {"a": [1, None, 9], "s": ["a", "b"]},
    "nested": {"a": [[1, 2], [3]]},
    "words": {"s": ["apple", "avocado"], "name": "apple"},
    "mixed": {"a": [1, "x", True], "s": ["x", 1]},
    "item": {"items": {"price": 5, "stock": 1}},
    "apart": {"items": [{"price": 5, "stock": 0}, {"price": 50, "stock": 3}]},
    "same": {"items": [{"price": 50, "stock": 0}, {"price": 5, "stock": 3, "tags": ["new", "red"]}]},
    "lacking": {"items": [{"price": 50}, {"stock": 3}, None]},
    "deep": {"o": {"a": [1, 2]}, "m": {"k": [{"v": 1}, {"v": 2}]}, "items": [{"tags": []}, {"tags": ["new"]}]},
}
_ITEM = pa.struct({"price": pa.int64(), "stock": pa.int64(), "tags": pa.list_(pa.string())})
SCHEMA = pa.schema(
    {
        "a": pa.list_(pa.int64()),
        "b": pa.int64(),
        "s": pa.list_(pa.string()),
        "name": pa.string(),
        "items": pa.list_(_ITEM),
        "o": pa.struct({"a": pa.list_(pa.int64())}),
        "m": pa.map_(pa.string(), pa.list_(pa.struct({"v": pa.int64()}))),
    }
)

# condition -> the events for which it is TRUE, and FALSE
HOLDS = {
    "size(a) = 0": ("empty", "one ones three holes nested mixed"),
    "size(a) >= 2": ("three holes nested mixed", "empty one ones"),
    "cardinality(items) = 1": ("item", "empty apart same lacking deep"),
    "size(o.a) = 2": ("deep", ""),
    "size(items.price) = 2": ("apart same deep", "empty item lacking"),
    "size(array(b, 2)) = 2": (
        "nothing null empty one ones three holes nested words mixed item apart same lacking deep",
        "",
    ),
    "array_contains(a, 5)": ("three", "empty one ones"),
    "array_contains(a, b)": ("three", "ones"),
    "array_contains(array(1, 7), b)": ("ones", "three"),
    "array_contains(s, 'x')": ("one mixed", "holes words"),
    "arrays_overlap(a, array(9, 7))": ("one ones three holes", "empty"),
    "arrays_overlap(s, array('b', 'x'))": ("one holes mixed", "words"),
    "arrays_overlap(a, a)": ("one ones three holes mixed", "empty"),
    "a[0] = 7": ("one ones", "three holes mixed nested"),
    "a[2] > 5": ("three holes", ""),
    "a[b] > 5": ("", ""),
    "get(a, 1) = 5": ("three", "nested"),
    "element_at(a, 1) = 1": ("three holes mixed nested", "one ones nested"),
    "element_at(a, -1) = 9": ("three holes", "one ones nested"),
    "element_at(a, 0) IS NULL": (" ".join(EVENTS), ""),
    "a[1][0] = 3": ("nested", "three"),
    "items[0].price < 10": ("item apart", "same lacking"),
    "items[1].tags[0] = 'new'": ("same deep", ""),
    "m['k'][1].v = 2": ("deep", ""),
    "element_at(m, 'k')[0].v = 1": ("deep", ""),
    "m.k[0].v + 1 = 2": ("deep", ""),
    "items[0]['price'] + 1 < 10": ("item apart", "same lacking"),
    "upper(s[0]) = 'X'": ("one mixed", "holes words"),
    "exists(a, x -> x > 5)": ("one ones three holes", "empty nested"),
    "forall(a, x -> x > 5)": ("empty one ones", "three holes nested mixed"),
    "exists(a, x -> x IS NULL)": ("holes", "empty one ones three nested mixed"),
    "forall(a, x -> x IS NOT NULL)": ("empty one ones three nested mixed", "holes"),
    "exists(a, q -> q > b AND q < b * 2)": ("three", "empty ones"),
    "exists(a, x -> (x > 100) IS NOT TRUE)": ("one ones three holes nested mixed", "empty"),
    "exists(a, x -> (x > 5) IS UNKNOWN)": ("holes mixed", "empty one ones three nested"),
    "forall(a, x -> x BETWEEN 0 AND 9)": ("empty one ones three nested", ""),
    "exists(items, x -> x.price < 10 AND x.stock > 0)": ("item same", "empty apart"),
    "exists(items, x -> x.price < 10) AND exists(items, x -> x.stock > 0)": ("item apart same", "empty"),
    "forall(items, x -> x.price < 100)": ("empty item apart same", ""),
    "forall(items, x -> is_present(x.price))": ("empty item apart same", "deep lacking"),
    "exists(items, x -> is_present(x.stock) AND NOT is_present(x.price))": ("lacking", "empty item apart same deep"),
    "exists(items, x -> size(x.tags) = 2)": ("same", "empty deep"),
    "exists(items, x -> x.tags = 'red')": ("same", "empty"),
    "exists(items, x -> x.tags = 'red' AND x.tags = 'new')": ("", "empty"),
    "exists(items, x -> exists(x.tags, t -> t = 'red') AND array_contains(x.tags, 'new'))": ("same", "empty deep"),
    "exists(items.tags, t -> t = 'new')": ("same deep", "empty"),
    "exists(s, x -> x = name)": ("words", ""),
    "forall(s, x -> x LIKE 'a%')": ("words", "one holes mixed"),
    "exists(s, x -> length(x) > length(name) AND startswith(x, 'avo'))": ("words", "one holes"),
    "exists(o.a, x -> exists(a, y -> y = x))": ("", ""),
    "if(size(a) > 2, a[2], b) = 9": ("three holes", "ones"),
    "CASE WHEN exists(a, x -> x = 5) THEN 'five' ELSE 'none' END = 'five'": (
        "three",
        "nothing null empty one ones holes nested words mixed item apart same lacking deep",
    ),
    "size(a) + size(s) = 5": ("holes mixed", "one"),
    "a[0] IS NULL": ("nothing null empty words item apart same lacking deep", "one ones three holes nested mixed"),
    "(size(a) > 1) IS NOT TRUE": (
        "nothing null empty one ones words item apart same lacking deep",
        "three holes nested mixed",
    ),
    "size(a) BETWEEN 1 AND 2": ("one ones nested", "empty three holes mixed"),
    "size(s) IN (1, 2)": ("one holes words mixed", ""),
}
