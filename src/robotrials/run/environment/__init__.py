"""Isolated environments: packages that cannot live beside ours, made once, verified, and spoken to over a socket."""

from robotrials.run.environment.process import WorkerProcess
from robotrials.run.environment.recipe import (
    Environment,
    Recipe,
    environments,
    environments_folder,
    find_environment,
    read_recipe,
    recipe_names,
)

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
