"""`python -m robotrials`."""

from robotrials.cli import main

if __name__ == '__main__':
    main()
