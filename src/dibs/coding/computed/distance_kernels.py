"""Distances between places: see language.functions.places."""

from __future__ import annotations

import math

from dibs.jit.kernel import kernel
from dibs.language.functions.places import DEGREE, RADIUS


@kernel
def measure(lat, lon, lat_2, lon_2, metres):
    """Fills in the distance of each pair of places, or NaN where one is none. All arrays are of one length."""
    for i in range(len(metres)):
        a, b, c, d = lat[i], lon[i], lat_2[i], lon_2[i]
        if not (-90.0 <= a <= 90.0 and -90.0 <= c <= 90.0 and -180.0 <= b <= 180.0 and -180.0 <= d <= 180.0):
            metres[i] = math.nan
            continue
        up, across = math.sin((c - a) * DEGREE / 2.0), math.sin((d - b) * DEGREE / 2.0)
        share = up * up + math.cos(a * DEGREE) * math.cos(c * DEGREE) * (across * across)
        metres[i] = 2.0 * RADIUS * math.asin(min(1.0, math.sqrt(share)))
