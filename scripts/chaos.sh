#!/usr/bin/env bash
# The big counts that `make test` takes a sample of: 100 leaders stopped in a power-off, and kill -9 at 52 points
# of the host loop, 22 of them beside a real cluster, 10,000 pods bound in the middle of drains, and simulated days
# full of trouble: with a bit of everything (CHAOS_SEEDS=0..1000), with the leases of production (CHAOS_EXACT=0..50), on sites of 64
# hosts (CHAOS_LARGE=0..20), and with much of one kind (CHAOS_FOCUSED=0..10).
# Takes about an hour and a half.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"
scripts/peers/build.sh etcd etcdctl kubectl kube-apiserver kube-controller-manager kube-scheduler >/dev/null
export MUSTER_CHAOS=all
cargo test --workspace --locked --test chaos --no-run
# One after the other: each of them has enough processes of its own.
cargo test --workspace --locked --test chaos -- --test-threads=1 --nocapture "$@"
# The production loops in a world in memory; a broken invariant is printed with the command that repeats it.
cargo test --release --locked -p muster-sim --test reliability -- --ignored
cargo build --release --locked -p muster
target/release/muster sim fuzz --seeds "${CHAOS_SEEDS:-0..1000}" --hours 24
target/release/muster sim fuzz --seeds "${CHAOS_EXACT:-0..50}" --hours 24 --exact
target/release/muster sim fuzz --seeds "${CHAOS_LARGE:-0..20}" --hours 24 --hosts 64
# A test compares this list with the kinds that there are.
for kind in lies silence accounts boots stops kubelets buttons views drains metrics racks cables crashes pauses \
  stores clocks bounds people herds blips guards storms; do
  echo "days full of $kind"
  target/release/muster sim fuzz --seeds "${CHAOS_FOCUSED:-0..10}" --hours 24 --focus "$kind"
done
