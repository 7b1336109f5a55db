"""Isolated environments: packages that cannot live beside ours, made once, verified, and spoken to over a socket."""

from robotrials.environment.place import Environment, environments, environments_folder, find_environment
from robotrials.environment.process import WorkerProcess
from robotrials.environment.recipe import Recipe, read_recipe, recipe_names

__all__ = [
    'Environment',
    'Recipe',
    'WorkerProcess',
    'environments',
    'environments_folder',
    'find_environment',
    'read_recipe',
    'recipe_names',
]
