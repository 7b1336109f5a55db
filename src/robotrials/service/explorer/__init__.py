"""The run explorer: find an episode, and see what happened in it, to the frame."""

from robotrials.service.explorer.pages import create_explorer

__all__ = ['create_explorer']
