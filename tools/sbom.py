"""Print the software bill of materials: everything in the lock, as CycloneDX 1.5 JSON.

python tools/sbom.py requirements.lock > sbom.json
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

PIN = re.compile(r'^(?P<name>[\w.\-]+)==(?P<version>[^\s;\\]+)')


def components(lock: str) -> list[dict[str, Any]]:
    """One component for each pin; the hashes of its files, one for every platform, are in the lock."""
    libraries = []
    for entry in re.split(r'\n(?=[^\s#])', lock):
        match = PIN.match(entry)
        if match is None:
            continue
        name, version = re.sub(r'[-_.]+', '-', match['name']).lower(), match['version']
        purl = f'pkg:pypi/{name}@{version}'
        libraries.append({'type': 'library', 'name': name, 'version': version, 'purl': purl, 'bom-ref': purl})
    return libraries


def bill(lock: str, *, version: str) -> dict[str, Any]:
    """The whole document; it says nothing that changes from one run to the next."""
    return {
        'bomFormat': 'CycloneDX',
        'specVersion': '1.5',
        'version': 1,
        'metadata': {'component': {'type': 'application', 'name': 'robotrials', 'version': version}},
        'components': components(lock),
    }


def main() -> None:
    root = Path(__file__).resolve().parent.parent
    text = (root / 'src' / 'robotrials' / '__init__.py').read_text(encoding='utf-8')
    version = re.search(r"__version__ = '([^']+)'", text)
    lock = Path(sys.argv[1]).read_text(encoding='utf-8')
    print(json.dumps(bill(lock, version=version[1] if version else '0'), indent=1))


if __name__ == '__main__':
    main()
