"""`python -m robotrials.cli`."""

from robotrials.cli.app import main

main()
