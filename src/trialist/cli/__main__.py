"""`python -m trialist.cli`."""

from trialist.cli.app import main

main()
