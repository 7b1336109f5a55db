#!/bin/sh
# Make an environment with TensorFlow Datasets beside the project: the oracle of tests/formats/test_tfds_peer.py and the
# peer of bench/actions.py. It is optional; both look for bench/peers/tfds, or for the Python named in ROBOTRIALS_TFDS_PYTHON.
set -eu
root=${1:-bench/peers/tfds}
python=${PYTHON:-python3.11}
test -x "$root/bin/python" || "$python" -m venv "$root"
"$root/bin/pip" install -q --disable-pip-version-check tensorflow-cpu tensorflow-datasets
"$root/bin/python" -c 'import tensorflow_datasets as tfds; print("tensorflow-datasets", tfds.__version__)'
