#!/bin/sh
# Write again what is generated from the code and the documents: import contracts, the command reference, and what
# `robotrials import` prints.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" tools/import_contracts.py > .importlinter
"$python" tools/cli_reference.py > docs/reference/cli.md
"$python" tools/python_reference.py > docs/reference/python.md
"$python" tools/import_examples.py > docs/reference/import-examples.md
"$python" tools/glossary_page.py > docs/reference/glossary.md
