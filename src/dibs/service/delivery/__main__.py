"""`python -m dibs.service.delivery FOLDER`: the process that delivers; `dibs serve` starts it.

How long attempts and pauses take can be set in the environment too (DIBS_DELIVERY_SECONDS, _FIRST, _LONGEST, _AGE,
_ATTEMPTS, as in DeliverySettings): an option is stronger.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import get_args

from dibs.errors import DibsError
from dibs.service.delivery.addresses import Reach
from dibs.service.delivery.deliverer import DeliverySettings, run_deliverer
from dibs.service.logs import Form, Level, configure_logs
from dibs.service.private_files import keep_private

FAILED = 3  # the exit code
TIMES = {"seconds": float, "first": float, "longest": float, "age": float, "attempts": int}


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m dibs.service.delivery", description="Delivers what waits.")
    options.add_argument("folder")
    options.add_argument("--allow-loopback", action="store_true", help="webhooks may go to this machine")
    options.add_argument("--allow-private", action="store_true", help="webhooks may go to private networks")
    options.add_argument("--broker", action="append", default=[], help="host:port of a Kafka broker")
    options.add_argument("--secrets-key", type=Path, help="the file of the keys that secrets are encrypted with")
    options.add_argument("--log", default="text", choices=get_args(Form), help="how it says something")
    options.add_argument("--log-level", default="warning", choices=get_args(Level))
    for name, kind in TIMES.items():
        default = os.environ.get(f"DIBS_DELIVERY_{name.upper()}", getattr(DeliverySettings(), name))
        options.add_argument(f"--{name}", type=kind, default=default)
    chosen = options.parse_args()
    configure_logs(chosen.log, chosen.log_level)
    keep_private()
    reach = Reach(chosen.allow_loopback, chosen.allow_private)
    times = {name: getattr(chosen, name) for name in TIMES}
    settings = DeliverySettings(reach, tuple(chosen.broker), chosen.secrets_key, **times)
    try:
        run_deliverer(chosen.folder, settings)
    except DibsError as error:
        logging.getLogger("dibs.service.delivery").error("nothing is delivered: %s", error)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
