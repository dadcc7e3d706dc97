#!/usr/bin/env bash
# install.sh [NAME...] : makes the foreign BMC peers available and prints the directory with their Python.
#
# Names: ipmi (Debian: ipmi_sim, ipmitool, ipmipower), sushy (PyPI: sushy-tools), pyghmi (PyPI). Without a
# name, all of them. The virtual environment lives outside the tree in ${MUSTER_CACHE:-~/.cache/muster}, so
# that a second checkout finds it again. What is there is not installed twice; a lock keeps callers apart.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/versions.env"
cache=${MUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/muster}
venv=$cache/bmc/sushy-$SUSHY_TOOLS_VERSION-pyghmi-$PYGHMI_VERSION
mkdir -p "$cache/bmc"
exec 9>"$cache/bmc/.lock"
flock 9

debian() { # COMMAND PACKAGE
  PATH=$PATH:/usr/sbin command -v "$1" >/dev/null && return
  echo "installing Debian package $2" >&2
  for _ in 1 2 3 4 5 6; do
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$2" >&2 && return
    apt-get update >&2 || true
    sleep 5
  done
  echo "install.sh: cannot install $2; install it by hand and run this again" >&2
  exit 1
}

pypi() { # MODULE REQUIREMENT
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv" >&2
  "$venv/bin/python" -c "import $1" 2>/dev/null && return
  echo "installing $2 into $venv" >&2
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$2" >&2
}

[ $# -gt 0 ] || set -- ipmi sushy pyghmi
for name in "$@"; do
  case $name in
    ipmi) debian ipmi_sim openipmi; debian ipmitool ipmitool; debian ipmipower freeipmi-tools ;;
    sushy) pypi sushy_tools "sushy-tools==$SUSHY_TOOLS_VERSION" ;;
    pyghmi) pypi pyghmi "pyghmi==$PYGHMI_VERSION" ;;
    *) echo "install.sh: unknown peer '$name'; known are ipmi, sushy, pyghmi" >&2; exit 2 ;;
  esac
done
echo "$venv/bin"
