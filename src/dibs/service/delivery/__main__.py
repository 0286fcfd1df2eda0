"""`python -m dibs.service.delivery FOLDER`: the process that delivers; `dibs serve` starts it.

How long attempts and pauses take can be set in the environment too (DIBS_DELIVERY_SECONDS, _FIRST, _LONGEST, _AGE,
_ATTEMPTS, as in DeliverySettings): an option is stronger.
"""

from __future__ import annotations

import argparse
import os

from dibs.service.delivery.addresses import Reach
from dibs.service.delivery.deliverer import DeliverySettings, run_deliverer

TIMES = {"seconds": float, "first": float, "longest": float, "age": float, "attempts": int}


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m dibs.service.delivery", description="Delivers what waits.")
    options.add_argument("folder")
    options.add_argument("--allow-loopback", action="store_true", help="webhooks may go to this machine")
    options.add_argument("--allow-private", action="store_true", help="webhooks may go to private networks")
    options.add_argument("--broker", action="append", default=[], help="host:port of a Kafka broker")
    for name, kind in TIMES.items():
        default = os.environ.get(f"DIBS_DELIVERY_{name.upper()}", getattr(DeliverySettings(), name))
        options.add_argument(f"--{name}", type=kind, default=default)
    chosen = options.parse_args()
    reach = Reach(chosen.allow_loopback, chosen.allow_private)
    times = {name: getattr(chosen, name) for name in TIMES}
    run_deliverer(chosen.folder, DeliverySettings(reach, tuple(chosen.broker), **times))


if __name__ == "__main__":
    main()
