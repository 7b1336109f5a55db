"""The run explorer: find an episode, and see what happened in it, to the frame."""

from trialist.web.explore.pages import create_explorer

__all__ = ['create_explorer']
