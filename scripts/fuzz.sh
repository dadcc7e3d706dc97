#!/usr/bin/env bash
# Runs every fuzz target for FUZZ_SECONDS (300) seconds, or those that are named. Inputs that were found grow in
# fuzz/grown; the fixed corpus in fuzz/corpus also runs in `make test`, with any compiler.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"
seconds=${FUZZ_SECONDS:-300}
need g++ g++
if ! rustup toolchain list | grep -q '^nightly'; then
  rustup toolchain install nightly --profile minimal
fi
fuzz=$(tool cargo-fuzz 0.13.2)
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(quantity selector manifest scenario plan)
failed=()
for target in "${targets[@]}"; do
  mkdir -p "fuzz/grown/$target"
  # Our code has no unsafe block: a sanitizer would find nothing and cost half the speed. Overflow checks stay on.
  if PATH="$(dirname "$fuzz"):$PATH" cargo +nightly fuzz run --fuzz-dir fuzz --sanitizer none ${FUZZ_BUILD:-} "$target" \
      "fuzz/grown/$target" "fuzz/corpus/$target" -- \
      -max_total_time="$seconds" -timeout=30 -rss_limit_mb=4096 -max_len=16384 -print_final_stats=1 2>&1 |
      tee "fuzz/grown/$target.log" | grep -aE '^(stat::|==|SUMMARY|thread|assertion|Test unit|artifact)|panicked|ERROR'; then
    runs=$(grep -aoE 'number_of_executed_units: [0-9]+' "fuzz/grown/$target.log" | grep -oE '[0-9]+$' || echo 0)
    echo "$target: $runs runs, nothing found"
  else
    failed+=("$target")
    echo "$target: see fuzz/grown/$target.log and fuzz/artifacts/$target"
  fi
done
[ ${#failed[@]} = 0 ] || { echo "found something: ${failed[*]}"; exit 1; }
