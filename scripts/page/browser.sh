#!/usr/bin/env bash
# Every page in every state, in a real Chromium, against the debug binary; pictures in target/page-shots.
# ONLY=text and PARTS=lab,identities,steady,lively choose some (web/e2e/run.mjs).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
cd "$root"
node_ready
need chromium chromium; need fc-list fontconfig; need openssl openssl
scripts/page/build.sh
# As the tests build it: another selection of packages would choose other features and build everything twice.
[ -n "${MUSTER_BIN:-}" ] || cargo test --workspace --locked --no-run --quiet
(cd web && npm run --silent e2e)
