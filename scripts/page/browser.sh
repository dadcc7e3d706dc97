#!/usr/bin/env bash
# Every page in every state, in a real Chromium, against the debug binary; pictures in target/page-shots.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
cd "$root"
apt_ready
node_ready
need chromium chromium; need fc-list fontconfig
scripts/page/build.sh
cargo build -p muster --locked
(cd web && npm run --silent e2e)
