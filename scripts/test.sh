#!/usr/bin/env bash
# Runs everything that must hold and ends with one line, "N passed, N failed".
# Each step writes target/test-logs/<step>.log; a failing step shows its end at once, and the others go on.
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root" || exit 1
logs=$root/target/test-logs
rm -rf "$logs"; mkdir -p "$logs"
passed=0 failed=0 summary=()

# step NAME COMMAND... : runs it, counts the tests that it reports, or itself as one.
step() {
  local name=$1 log=$logs/$1.log started=$SECONDS ok fail state=ok; shift
  printf '%-28s ' "$name"
  "$@" >"$log" 2>&1; local code=$?
  ok=$(grep -aoE '^test result: .* [0-9]+ passed' "$log" | grep -oE '[0-9]+ passed' | awk '{ n += $1 } END { print n + 0 }')
  fail=$(grep -aoE '^test result: .*; [0-9]+ failed' "$log" | grep -oE '[0-9]+ failed' | awk '{ n += $1 } END { print n + 0 }')
  if [ $((ok + fail)) = 0 ]; then
    if [ $code = 0 ]; then ok=1; else fail=1; fi
  elif [ $code != 0 ] && [ "$fail" = 0 ]; then
    fail=1 # it did not get as far as counting
  fi
  [ $code = 0 ] || state=FAILED
  passed=$((passed + ok)) failed=$((failed + fail))
  printf '%-7s %5d passed %4d failed  %4d s\n' "$state" "$ok" "$fail" $((SECONDS - started))
  [ $code = 0 ] || { summary+=("$name: $log"); grep -aE -A 4 '^(error|FAILED|failures:|---- |thread .* panicked|test .* FAILED)' "$log" | head -80; echo "  ... last lines of $log:"; tail -n 25 "$log" | sed 's/^/  | /'; }
}

install() {
  apt_ready
  need cc gcc; need jq jq; need chromium chromium; need fc-list fontconfig; need curl curl; need openssl openssl; need python3 python3; need unshare util-linux; need prometheus prometheus; need promtool prometheus
  scripts/peers/build.sh etcd etcdctl kubectl kube-apiserver kube-controller-manager kube-scheduler kwok
  scripts/bmc/install.sh
  scripts/contract/install.sh
}
# The page is built before the program, which takes it in.
page() {
  node_ready
  scripts/page/build.sh && (cd web && npm run --silent check && npm run --silent test)
}
formatted() { cargo fmt --all --check; }
lints() { cargo clippy --workspace --all-targets --locked -- -D warnings; }
denied() { "$(tool cargo-deny 0.20.2)" check bans licenses sources; }
built() { cargo test --workspace --locked --no-run; }
# One command for all crates: selecting single ones would choose other features and build twice.
tests() { cargo test --workspace --locked --no-fail-fast; }

step install install
step page page
step format formatted
step lints lints
step dependencies denied
step build built
step tests tests
step browser scripts/page/browser.sh
# What each test program reported, as "program: result".
awk '/^     Running |^   Doc-tests / { name = $0; sub(/^ +(Running|Doc-tests) /, "", name); sub(/ \(.*/, "", name) }
  /^test result:/ { sub(/^test result: /, ""); if ($2 > 0 || $4 > 0) printf "  %-44s %5d passed %3d failed %8s\n", name, $2, $4, $NF }' "$logs/tests.log"

printf '\n'
for line in "${summary[@]}"; do echo "failed: $line"; done
echo "took $((SECONDS / 60)) min $((SECONDS % 60)) s"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
