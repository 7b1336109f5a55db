"""The platform's pages: drawn by the server from the same services as the REST interface, and bound by the same scopes.

They follow blinding: a submission whose blinding has not ended has its name shown to its owner alone.

Putting the pages into the application.
"""

from __future__ import annotations

from urllib.parse import urlencode

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response

from robotrials.service.frame import install_frame
from robotrials.service.platform.page import admin, board, submission
from robotrials.service.platform.page import board as cell
from robotrials.service.platform.page import visit as sign_in
from robotrials.service.platform.page.board import SubmissionExplorer
from robotrials.service.platform.page.visit import COOKIE, draw, find_visitor

TITLES = {
    401: 'Sign in first', 403: 'This is not yours to do', 404: 'There is no such page', 409: 'That cannot be done now',
    422: 'Something was left out, or is not as wanted', 429: 'Too many requests', 500: 'The server failed',
}  # fmt: skip


def install_pages(app: FastAPI) -> None:
    """Pages, their static files, and the guard of every answer."""
    for module in (sign_in, board, submission, cell, admin):
        app.include_router(module.router)
    app.mount('/submission/{submission_id}/explore', SubmissionExplorer(app.state.platform))
    install_frame(app)


def error_page(request: Request, status: int, message: str) -> Response:
    """A refusal as a page; who is not signed in is asked to."""
    if status == 401 and request.method == 'GET':
        here = request.url.path + (f'?{request.url.query}' if request.url.query else '')
        return RedirectResponse('/sign-in?' + urlencode({'then': here}), status_code=303)
    visitor = find_visitor(request.app.state.platform, request.cookies.get(COOKIE, ''))
    return draw('refused.html.j2', visitor, status=status, title=TITLES.get(status, 'Refused'), message=message)
