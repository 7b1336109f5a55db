"""Make the isolated environments of outside programs that trialist is tested against, where they are missing.

python tools/peer_environments.py [NAME ...]     all of them by default; prints each one's interpreter

They need packages that can't live beside ours (openpi-client wants numpy 1). Each lies in .peers/NAME, or in the folder
that TRIALIST_PEERS names.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# openpi-client 0.1.2 imports typing_extensions and does not ask for it; pillow is for its image_tools.
PEERS = {
    'openpi': ('openpi-client==0.1.2', 'typing-extensions==4.15.0'),
    'openvla': ('json-numpy==2.1.1', 'requests==2.34.2'),
    'vla-eval': ('vla-eval==0.8.0', 'pillow==13.0.0'),
}


def peer_folder() -> Path:
    """Where the environments lie."""
    return Path(os.environ.get('TRIALIST_PEERS', ROOT / '.peers'))


def make_peer(name: str) -> Path:
    """The interpreter of one environment, made first if it is missing; several callers take turns."""
    folder = peer_folder() / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f'.{name}.lock').open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python = folder / 'bin' / 'python'
        complete, wanted = folder / '.complete', '\n'.join(PEERS[name])
        if not complete.exists() or complete.read_text() != wanted:
            venv.create(folder, with_pip=True, clear=True)
            command = [str(python), '-m', 'pip', 'install', '-q', '--disable-pip-version-check', *PEERS[name]]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)
            complete.write_text(wanted)
    return python


def main() -> None:
    unknown = set(sys.argv[1:]) - set(PEERS)
    if unknown:
        raise SystemExit(f'no peer named {", ".join(sorted(unknown))}; known: {", ".join(PEERS)}')
    for name in sys.argv[1:] or PEERS:
        print(make_peer(name))


if __name__ == '__main__':
    main()
