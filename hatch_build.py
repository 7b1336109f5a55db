"""The build of a wheel, editable or not: compile the kernels in place, or say why they are not.

A kernel that does not compile fails the build. A missing compiler does not, since numpy serves then, unless CI=true or
ROBOTRIALS_KERNELS=compiled asks for kernels; ROBOTRIALS_KERNELS=numpy leaves them out.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelHook(BuildHookInterface):
    PLUGIN_NAME = 'custom'

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != 'wheel' or os.environ.get('ROBOTRIALS_KERNELS') == 'numpy':
            return
        spec = importlib.util.spec_from_file_location('build_kernels', Path(self.root, 'tools', 'build_kernels.py'))
        assert spec is not None
        assert spec.loader is not None
        builder = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(builder)
        try:
            extensions = builder.build()
        except builder.NoCompiler as absent:
            if os.environ.get('CI') == 'true' or os.environ.get('ROBOTRIALS_KERNELS') == 'compiled':
                raise
            self.app.display_warning(f'kernels not compiled, numpy serves: {absent}')
            return
        build_data['pure_python'] = False
        build_data['tag'] = f'cp311-abi3-{builder.platform_tag()}'
        if version == 'standard':
            source = Path(self.root, 'src')
            build_data['force_include'].update({str(path): str(path.relative_to(source)) for path in extensions})
