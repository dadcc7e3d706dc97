#!/usr/bin/env bash
# Builds Muster and starts it for a person to use at once.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"
need cc gcc
scripts/page/build.sh
cargo build --release --locked -p muster
exec target/release/muster serve --data-dir "${MUSTER_DATA_DIR:-.data}" --seed-example "$@"
