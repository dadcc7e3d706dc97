#!/usr/bin/env bash
# Builds Muster and starts the demo: a fleet of simulated servers on one page, for a person to look at at once.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"
need cc gcc
scripts/page/build.sh
cargo build --release --locked -p muster
exec "${CARGO_TARGET_DIR:-target}/release/muster" demo "$@"
