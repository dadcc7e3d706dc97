#!/usr/bin/env bash
# Makes the pictures of the README anew: the demo, and a real browser that looks at it.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
cd "$root"
need cc gcc
node_ready
need chromium chromium
scripts/page/build.sh
[ -n "${MUSTER_BIN:-}" ] || cargo build --release --locked -p muster
mkdir -p docs/pictures
MUSTER_BIN=${MUSTER_BIN:-$root/target/release/muster} SHOTS=$root/docs/pictures node web/e2e/pictures.mjs
