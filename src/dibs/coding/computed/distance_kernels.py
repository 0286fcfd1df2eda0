"""Distances between places: see language.functions.places."""

from __future__ import annotations

import math

import numpy as np

from dibs.jit.kernel import kernel, phase
from dibs.language.functions.places import DEGREE, RADIUS


@kernel
def measure(lat, lon, lat_2, lon_2, metres):
    """Fills in the distance of each pair of places, or NaN where one is none. All arrays are of one length."""
    known = np.full(4, math.nan)
    for i in range(len(metres)):
        metres[i] = distance(lat[i], lon[i], lat_2[i], lon_2[i], known)


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
