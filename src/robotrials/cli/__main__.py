"""`python -m robotrials.cli`."""

from robotrials.cli.option import main

main()
