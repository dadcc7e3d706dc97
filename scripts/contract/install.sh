#!/usr/bin/env bash
# install.sh : a Python environment with the peers of the contract tests; prints its directory.
#
# It lives outside the tree in ${MUSTER_CACHE:-~/.cache/muster} and is made once; a lock keeps callers apart.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/versions.env"
. "$here/../lib.sh"
mkdir -p "$cache/venv"
exec 9>"$cache/venv/.contract.lock"
flock 9
venv contract "schemathesis==$SCHEMATHESIS_VERSION" "openapi-python-client==$OPENAPI_PYTHON_CLIENT_VERSION"
