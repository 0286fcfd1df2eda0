"""python -m dibs.cli: the command where no `dibs` is on the path."""

from dibs.cli import main

main()
