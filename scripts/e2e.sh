#!/usr/bin/env bash
# Every story on a real control plane: those of `make test`, and the long ones.
# STORIES=name runs those whose name contains it.
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root" || exit 1
apt_ready
need cc gcc; need jq jq; need openssl openssl
scripts/peers/build.sh etcd etcdctl kubectl kube-apiserver kube-controller-manager kube-scheduler kwok >/dev/null || exit 1
# Two at a time: each has a Muster and servers of its own, and they share the machine.
exec cargo test --workspace --locked --test stories "${STORIES:-}" -- --include-ignored --test-threads="${E2E_THREADS:-2}"
