#!/bin/sh
# Make an environment with Open3D beside the project: the peer of bench/geometry.py. It is optional and large (about 2 GB);
# the bench looks for .peers/open3d, or for the Python named in ROBOTRIALS_OPEN3D_PYTHON.
set -eu
root=${1:-${ROBOTRIALS_PEERS:-.peers}/open3d}
python=${PYTHON:-python3.11}
test -x "$root/bin/python" || "$python" -m venv "$root"
"$root/bin/pip" install -q --disable-pip-version-check open3d==0.19.0
"$root/bin/python" -c 'import open3d; print("open3d", open3d.__version__)'
