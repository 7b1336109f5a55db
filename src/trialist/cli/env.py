"""`trialist env`: isolated environments for hosts and policies whose packages cannot live beside trialist's."""
import typer
env_app = typer.Typer(no_args_is_help=True)
@env_app.command('ls')
def ls() -> None:
    pass
