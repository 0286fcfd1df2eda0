"""`python -m dibs.service.delivery FOLDER`: the process that delivers; `dibs serve` starts it."""

from __future__ import annotations

import argparse

from dibs.service.delivery.addresses import Reach
from dibs.service.delivery.deliverer import DeliverySettings, run_deliverer


def main() -> None:
    default = DeliverySettings()
    options = argparse.ArgumentParser(prog="python -m dibs.service.delivery", description=__doc__)
    options.add_argument("folder")
    options.add_argument("--allow-loopback", action="store_true", help="webhooks may go to this machine")
    options.add_argument("--allow-private", action="store_true", help="webhooks may go to private networks")
    options.add_argument("--broker", action="append", default=[], help="host:port of a Kafka broker")
    for name in ("seconds", "first", "longest", "age"):
        options.add_argument(f"--{name}", type=float, default=getattr(default, name))
    options.add_argument("--attempts", type=int, default=default.attempts)
    chosen = options.parse_args()
    reach = Reach(chosen.allow_loopback, chosen.allow_private)
    times = {name: getattr(chosen, name) for name in ("seconds", "first", "longest", "age", "attempts")}
    run_deliverer(chosen.folder, DeliverySettings(reach, tuple(chosen.broker), **times))


if __name__ == "__main__":
    main()
