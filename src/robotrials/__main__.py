"""`python -m robotrials`."""

from robotrials.cli.process import run_command

if __name__ == '__main__':
    run_command()
