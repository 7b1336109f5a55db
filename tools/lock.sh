#!/bin/sh
# Print the exact versions of everything in the environment but trialist itself: the lock that `make setup` installs.
set -eu
echo '# Exact versions for a reproducible set-up of trialist and its tests; written by `make lock`.'
"$1" freeze --exclude-editable --exclude trialist | grep -v ' @ ' | LC_ALL=C sort -f |
  sed -E 's/^(rtamt|antlr4-python3-runtime)==.*/&; python_version < "3.12"/'  # rtamt runs on no newer Python
