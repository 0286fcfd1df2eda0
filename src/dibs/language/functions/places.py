"""Functions of places on the earth."""

from __future__ import annotations

import math

from dibs.language.functions.plain import Number
from dibs.language.functions.table import function

RADIUS = 6_371_008.7714  # metres: the mean of the earth's
DEGREE = math.pi / 180.0


@function("GEO_DISTANCE", "N N N N", "N", "metres between two places, each a latitude and a longitude in degrees")
def geo_distance(lat: Number, lon: Number, lat_2: Number, lon_2: Number) -> float | None:
    """On a sphere (haversine); NULL where a latitude is not in [-90, 90] or a longitude not in [-180, 180]. The kernel
    in coding.computed.distance_kernels takes the same steps with the same libm, so that both give the same bits."""
    if not (-90 <= lat <= 90 and -90 <= lat_2 <= 90 and -180 <= lon <= 180 and -180 <= lon_2 <= 180):
        return None
    up, across = math.sin((lat_2 - lat) * DEGREE / 2.0), math.sin((lon_2 - lon) * DEGREE / 2.0)
    share = up * up + math.cos(lat * DEGREE) * math.cos(lat_2 * DEGREE) * (across * across)
    return 2.0 * RADIUS * math.asin(min(1.0, math.sqrt(share)))
