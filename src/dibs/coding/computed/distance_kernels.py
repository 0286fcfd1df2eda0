"""Distances between places: see language.functions.places."""

from __future__ import annotations

import math

from dibs.jit.kernel import phase
from dibs.language.functions.places import DEGREE, RADIUS


@phase(inline=False)
def distance(lat, lon, lat_2, lon_2, known):
    """known: two latitudes of before, each with its cosine; pairs of one event come together, or those of one row."""
    if not (-90.0 <= lat <= 90.0 and -90.0 <= lat_2 <= 90.0 and -180.0 <= lon <= 180.0 and -180.0 <= lon_2 <= 180.0):
        return math.nan
    up, across = math.sin((lat_2 - lat) * DEGREE / 2.0), math.sin((lon_2 - lon) * DEGREE / 2.0)
    if known[0] != lat:
        known[0], known[1] = lat, math.cos(lat * DEGREE)
    if known[2] != lat_2:
        known[2], known[3] = lat_2, math.cos(lat_2 * DEGREE)
    share = up * up + known[1] * known[3] * (across * across)
    return 2.0 * RADIUS * math.asin(min(1.0, math.sqrt(share)))
