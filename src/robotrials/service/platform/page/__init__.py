"""The platform's pages: drawn by the server from the same services as the REST interface, and bound by the same scopes.

They follow blinding: a submission whose blinding has not ended has its name shown to its owner alone.
"""

from robotrials.service.platform.page.install import error_page, install_pages

__all__ = ['error_page', 'install_pages']
