#!/usr/bin/env bash
# Runs everything that must hold and ends with one line, "N passed, N failed".
# Each step writes target/test-logs/<step>.log; a failing step shows its end at once, and the others go on.
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root" || exit 1
logs=$root/target/test-logs
rm -rf "$logs"; mkdir -p "$logs"
passed=0 failed=0 summary=() shaky=()
# More failures than this are not noise of the machine: nothing is tried again.
second_tries=3

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

# failures LOG : "target<TAB>test" for each failed test of a run of cargo test, as words that select it again.
failures() {
  awk '/^     Running / { target = $2 == "unittests" ? ($3 ~ /main\.rs$/ ? "--bins" : "--lib") : $2
      if (target ~ /^tests\//) { sub(/^tests\//, "", target); sub(/(\/main)?\.rs$/, "", target); target = "--test " target } }
    /^   Doc-tests / { target = "--doc" }
    /^failures:$/ { listed = 1; next }
    /^test result:/ { listed = 0 }
    listed && /^    [A-Za-z0-9_:]+$/ { print target "\t" $1 }' "$1" | sort -u
}
# again NAME : tries the failed tests of the step `tests` once more, each alone. One that passes then counts as passed and
# is named at the end: it depends on how busy the machine is, which is a defect of the test.
again() {
  local log=$logs/tests.log list target name
  list=$(failures "$log")
  # A program that died without a result may hide anything.
  [ "$(grep -acE '^     Running |^   Doc-tests ' "$log")" = "$(grep -ac '^test result:' "$log")" ] || return 0
  [ -n "$list" ] && [ "$(wc -l <<<"$list")" -le $second_tries ] && [ "$(wc -l <<<"$list")" = "$failed" ] || return 0
  while IFS=$'\t' read -r target name; do
    # shellcheck disable=SC2086 # the target is two words
    if cargo test --workspace --locked $target -- --exact "$name" </dev/null >>"$logs/second-try.log" 2>&1 \
      && grep -aqxE "test $name \.\.\. ok" "$logs/second-try.log"; then
      passed=$((passed + 1)) failed=$((failed - 1)); shaky+=("$name")
      echo "  $name passed alone, at the second try"
    fi
  done <<<"$list"
  [ "$failed" != 0 ] || summary=()
}
# tried NAME COMMAND... : like step; a failure is tried once more as a whole.
tried() {
  local name=$1 before=$failed good=$passed; shift
  step "$name" "$@"
  [ "$failed" -gt "$before" ] && [ $((failed - before)) -le $second_tries ] || return 0
  mv "$logs/$name.log" "$logs/$name.first.log"
  local kept=("${summary[@]}"); unset 'kept[-1]'
  passed=$good failed=$before summary=("${kept[@]}")
  step "$name" "$@"
  [ "$failed" -gt "$before" ] || shaky+=("$name: see $logs/$name.first.log")
}

step install install
step page page
step format formatted
step lints lints
step dependencies denied
step build built
step tests tests
again
tried browser scripts/page/browser.sh
# What each test program reported, as "program: result".
awk '/^     Running |^   Doc-tests / { name = $0; sub(/^ +(Running|Doc-tests) /, "", name); sub(/ \(.*/, "", name) }
  /^test result:/ { sub(/^test result: /, ""); if ($2 > 0 || $4 > 0) printf "  %-44s %5d passed %3d failed %8s\n", name, $2, $4, $NF }' "$logs/tests.log"

printf '\n'
for line in "${summary[@]}"; do echo "failed: $line"; done
for line in "${shaky[@]}"; do echo "only at the second try, mend it: $line"; done
echo "took $((SECONDS / 60)) min $((SECONDS % 60)) s"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
