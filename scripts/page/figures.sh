#!/usr/bin/env bash
# The page at 2,000 hosts and 10,000 pods with 50 changes a second, measured in a real Chromium (web/e2e/scale.mjs).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
cd "$root"
need cc gcc
node_ready
need chromium chromium; need fc-list fontconfig
scripts/page/build.sh
[ -n "${MUSTER_BIN:-}" ] || cargo build --release --locked -p muster
MUSTER_BIN=${MUSTER_BIN:-$root/target/release/muster} node web/e2e/scale.mjs
