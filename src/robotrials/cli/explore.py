"""`robotrials explore STORE`: look at episodes in a browser, film, path and telemetry on one clock."""

from __future__ import annotations

import threading
import webbrowser
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.cli.source import StorePath
from robotrials.errors import SetupError, install_hint

if TYPE_CHECKING:
    from fastapi import FastAPI


def explore(
    store: StorePath,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help='Where to listen on this machine; 0: any free port.')
    ] = 8765,
    browser: Annotated[bool, typer.Option(help='Open a browser window.')] = True,
) -> None:
    """Find an episode, and see what happened in it, frame by frame.

    Pages are served to this machine alone until you interrupt. Links include the time, so they can be shared with
    anyone who has a copy of the store. `robotrials report STORE --explorer http://127.0.0.1:8765/` links to it.

    Example: `robotrials explore runs/may`
    """
    from robotrials.record import read_store

    opened = read_store(store)

    def pages() -> FastAPI:
        from robotrials.service.explorer import create_explorer

        return create_explorer(opened)

    open_pages(pages, title=str(store), port=port, browser=browser)


def show_in_browser(address: str) -> None:
    """Have a browser ask for pages that are about to be served."""
    threading.Thread(target=webbrowser.open, args=[address], daemon=True).start()


def open_pages(make: Callable[[], FastAPI], *, title: str, port: int, browser: bool) -> None:
    """Serve pages to this machine until interrupted."""
    from robotrials.service.frame import listen, serve_locally

    try:
        app = make()
    except ModuleNotFoundError as error:
        raise SetupError(f'pages need {error.name}: {install_hint("web")}') from error
    listener = listen(port)
    address = f'http://127.0.0.1:{listener.getsockname()[1]}/'
    typer.echo(f'{title}: {address} (interrupt to end)')
    if browser:
        show_in_browser(address)
    serve_locally(app, listener)
