"""Make the isolated environments of outside programs that robotrials is tested against, where they are missing.

python tools/peer_environments.py [NAME ...]     all but the large ones by default; prints each one's interpreter,
                                                 and of an overlay its folder

They need packages that can't live beside ours (openpi-client wants numpy 1). Each lies in .peers/NAME, or in the folder
that ROBOTRIALS_PEERS names. With ROBOTRIALS_NEWEST=1 the newest releases are installed, for `make drift`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# openpi-client 0.1.2 imports typing_extensions and does not ask for it.
PEERS = {
    'openpi': ('openpi-client==0.1.2', 'typing-extensions==4.15.0'),
    'openvla': ('json-numpy==2.1.1', 'requests==2.34.2'),
    'vla-eval': ('vla-eval==0.8.0', 'pillow==13.0.0'),
    'inspect-ai': ('inspect-ai==0.3.285',),
    'inspect-robots': ('inspect-robots==0.60.0',),
    'positronic-model-server': ('positronic-model-server[websocket]==0.3.1',),
    'lerobot': (
        'torch==2.13.0', 'torchvision==0.28.0', 'datasets==4.1.1', 'huggingface-hub==0.35.3', 'av==15.1.0',
        'pandas==2.3.3', 'pillow==12.0.0', 'packaging==25.0', 'setuptools==80.9.0', 'draccus==0.10.0', 'einops==0.8.2',
        'jsonlines==4.0.0', 'deepdiff==8.6.1', 'opencv-python-headless==4.12.0.88', 'imageio==2.37.2',
        'termcolor==3.3.0', 'gymnasium==1.2.3', 'accelerate==1.12.0', 'pyserial==3.5', 'numpy==2.2.6',
        'diffusers==0.35.2', 'transformers==4.57.6',
    ),
    'positronic': ('positronic==0.4.1',),
}  # fmt: skip
# Packages laid over the environment of a recipe, which needs them for a test only: LIBERO, PushT and gRPC in LeRobot's.
OVERLAYS = {
    'lerobot-eval': ('lerobot-0.6', (
        'mujoco==3.8.1', 'numba==0.68.1', 'llvmlite==0.50.0', 'PyOpenGL==3.1.10', 'glfw==2.11.0', 'matplotlib==3.11.2',
        'easydict==1.13', 'future==1.0.0', 'contourpy==1.3.3', 'cycler==0.12.1', 'fonttools==4.68.0',
        'kiwisolver==1.5.1', 'pyparsing==3.3.3', 'absl-py==2.5.1', 'etils==1.14.0', 'importlib_resources==7.1.0',
        'robosuite==1.4.0', 'bddl==1.0.1', 'hf_libero==0.1.4', 'gym-pusht==0.1.8', 'pymunk==6.11.1', 'pygame==2.6.1',
        'shapely==2.2.0', 'cffi==2.1.1', 'pycparser==3.12', 'grpcio==1.85.1', 'protobuf==7.36.2',
    )),
}  # fmt: skip
# Installed last and without what they ask for: lerobot 0.4.4 wants an older torch, and runs on this one.
ALONE = {'lerobot': ('lerobot==0.4.4',)}
# Too large for every test run: made by `make test-peers`.
LARGE = ('inspect-ai', 'inspect-robots', 'lerobot', 'positronic', 'positronic-model-server')


def peer_folder() -> Path:
    """Where the environments lie."""
    return Path(os.environ.get('ROBOTRIALS_PEERS', ROOT / '.peers'))


def make_peer(name: str) -> Path:
    """The interpreter of one environment, made first if it is missing; several callers take turns."""
    folder = peer_folder() / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f'.{name}.lock').open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python = folder / 'bin' / 'python'
        alone = ALONE.get(name, ())
        packages = tuple(map(unpinned, PEERS[name])) if os.environ.get('ROBOTRIALS_NEWEST') else PEERS[name]
        complete, wanted = folder / '.complete', '\n'.join((*packages, *alone))
        if not complete.exists() or complete.read_text() != wanted:
            venv.create(folder, with_pip=True, clear=True)
            install(python, *packages)
            if alone:
                install(python, '--no-deps', *alone)
            complete.write_text(wanted)
    return python


def make_overlay(name: str) -> Path:
    """The folder of packages that goes onto the path of a recipe's environment, made first if it is missing."""
    from robotrials.run.environment import read_recipe
    from robotrials.run.environment.create import create_environment

    recipe, packages = OVERLAYS[name]
    python, folder = create_environment(read_recipe(recipe)).python, peer_folder() / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f'.{name}.lock').open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        complete, wanted = folder / '.complete', '\n'.join(packages)
        if not complete.exists() or complete.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            install(python, '--no-deps', '--target', str(folder), *packages)
            complete.write_text(wanted)
    return folder


def unpinned(line: str) -> str:
    """PACKAGE[EXTRA] of PACKAGE[EXTRA]==VERSION."""
    return line.partition('==')[0]


def install(python: Path, *arguments: str) -> None:
    """Run pip in an environment."""
    command = [str(python), '-m', 'pip', 'install', '-q', '--disable-pip-version-check', *arguments]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)


def main() -> None:
    unknown = set(sys.argv[1:]) - {*PEERS, *OVERLAYS}
    if unknown:
        raise SystemExit(f'no peer named {", ".join(sorted(unknown))}; known: {", ".join([*PEERS, *OVERLAYS])}')
    for name in sys.argv[1:] or [name for name in PEERS if name not in LARGE]:
        print(make_overlay(name) if name in OVERLAYS else make_peer(name))


if __name__ == '__main__':
    main()
