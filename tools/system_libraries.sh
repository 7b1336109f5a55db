#!/bin/sh
# Install what headless rendering, the checks of pages and the platform's tests need (GL, a browser, PostgreSQL), if
# missing and this machine has apt. With the argument "study" what the studies need: R and its package survival.
set -eu
missing=''
have() { ldconfig -p 2>/dev/null | grep -q "$1"; }
what="headless rendering, the checks of pages and the platform's tests"
if [ "${1:-}" = study ]; then
  what='the studies'
  command -v Rscript >/dev/null 2>&1 || missing="$missing r-base-core"
  Rscript --vanilla -e 'library(survival)' >/dev/null 2>&1 || missing="$missing r-cran-survival"
else
  have libOSMesa.so || missing="$missing libosmesa6"
  have libEGL.so.1 || missing="$missing libegl1 libegl-mesa0"
  have libGL.so.1 || missing="$missing libgl1 libgl1-mesa-dri"
  have libGLESv2.so.2 || missing="$missing libgles2"
  command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 \
    || command -v google-chrome >/dev/null 2>&1 || missing="$missing chromium"
  command -v initdb >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$missing postgresql"
fi
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
  echo "$what need$missing; install them with your system's package manager" >&2
  exit 0
fi
if [ -n "${ROBOTRIALS_NO_APT:-}" ]; then
  echo "ROBOTRIALS_NO_APT is set: not installing$missing; whatever needs them will say so" >&2
  exit 0
fi
as_root=''
[ "$(id -u)" = 0 ] || as_root='sudo -n'
echo "now installing system packages with apt, for $what:$missing" >&2
echo '(interrupt now, or set ROBOTRIALS_NO_APT=1, to do without)' >&2
if ! { $as_root apt-get update -qq && DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq $missing >/dev/null; }; then
  echo "could not install$missing: whatever needs them will say so; the rest works without" >&2
fi
