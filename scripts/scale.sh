#!/usr/bin/env bash
# Muster beside a large cluster: NODES (1000) kwok nodes and PODS (3000) pods on a real control plane. Prints memory, how late
# a change is seen, and how long after the last of a burst of BURST (500) pending pods there is a plan for all of them.
# MUSTER is the binary (target/release/muster, which is built when it is missing).
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root" || exit 1
nodes=${NODES:-1000} pods=${PODS:-3000} burst=${BURST:-500} probes=${PROBES:-100}
muster=${MUSTER:-$root/target/release/muster}
apt_ready; need jq jq; need curl curl; need openssl openssl
bin=$(scripts/peers/build.sh etcd kubectl kube-apiserver kube-controller-manager kube-scheduler kwok) || exit 1
[ -x "$muster" ] || cargo build --release --locked -p muster || exit 1

dir=$(mktemp -d)
coproc CLUSTER { KWOK=yes scripts/cluster/cluster.sh run "$dir/cluster" 2>"$dir/cluster.log"; }
cluster_pid=$CLUSTER_PID
server_pid=
finish() {
  [ -n "$server_pid" ] && kill "$server_pid" 2>/dev/null && wait "$server_pid" 2>/dev/null
  eval "exec ${CLUSTER[1]}>&-" 2>/dev/null
  wait "$cluster_pid" 2>/dev/null
  rm -rf "$dir"
}
trap finish EXIT
read -r said <&"${CLUSTER[0]}"; [ "$said" = ready ] || { cat "$dir/cluster.log"; exit 1; }
k() { "$bin/kubectl" --kubeconfig "$dir/cluster/admin.kubeconfig" "$@"; }
now() { date +%s%3N; }
until_true() { local end=$(($(date +%s) + $1)); shift; until "$@"; do [ "$(date +%s)" -lt "$end" ] || return 1; sleep 0.2; done; }

echo "$nodes nodes and $pods pods"
for ((i = 0; i < nodes; i++)); do
  printf -- '---\napiVersion: v1\nkind: Node\nmetadata: {name: n%04d, annotations: {kwok.x-k8s.io/node: fake}, labels: {type: kwok}}\nstatus: {allocatable: {cpu: "8", memory: 32Gi, pods: "110"}, capacity: {cpu: "8", memory: 32Gi, pods: "110"}}\n' "$i"
done | k create -f - >/dev/null || exit 1
workload() { # NAME REPLICAS CPU SELECTOR
  printf 'apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: %s}\nspec:\n  replicas: %d\n  selector: {matchLabels: {app: %s}}\n  template:\n    metadata: {labels: {app: %s}}\n    spec:\n      nodeSelector: {%s}\n      containers: [{name: c, image: none, resources: {requests: {cpu: %s, memory: 64Mi}}}]\n' "$1" "$2" "$1" "$1" "$4" "$3"
}
for ((i = 0; i < 10; i++)); do workload "load$i" $((pods / 10)) 100m 'type: kwok' | k create -f - >/dev/null; done
running() { [ "$(k get replicasets -o json | jq '[.items[].status.readyReplicas // 0] | add')" -ge "$pods" ]; }
until_true 900 running || { echo "the pods do not run"; exit 1; }

"$muster" serve --listen 127.0.0.1:0 --data-dir "$dir/data" --set log.format=text >"$dir/out" 2>"$dir/server.log" & server_pid=$!
until_true 60 grep -q 'muster serves on' "$dir/out" || { cat "$dir/server.log"; exit 1; }
url=$(sed -n 's/^muster serves on //p' "$dir/out")
export MUSTER_SERVER=$url HOME=$dir
m() { "$muster" "$@"; }
api() { curl -sf -H 'x-user-email: user@example.com' "$url$1"; }
began=$(now)
m create cluster scale --platform gcp --kubeconfig "$dir/cluster/admin.kubeconfig" >/dev/null 2>&1 || exit 1
id=$(api '/api/v1/clusters?name=scale' | jq -r '.clusters[0].id')
connected() { [ "$(api "/api/v1/clusters/$id/connection" | jq -r .status.state)" = Connected ]; }
until_true 120 connected || { echo "not connected"; exit 1; }
echo "in sync after                $(($(now) - began)) ms, $(api "/api/v1/clusters/$id/connection" | jq .status.objects) objects"
m create pool burst --cluster scale --platform gcp --machine-type n1-standard-16 --min 0 --max 200 >/dev/null || exit 1
# The burst is planned at once, not after the pool's usual delay.
m patch pool scale/burst --patch '{"spec":{"autoscaling":{"scaleUpDelay":"0s"}}}' >/dev/null || exit 1
sleep 5

# How late a pod is seen: from its creation to the first answer about it, with the planner's look in between.
for ((i = 0; i < probes; i++)); do
  printf 'apiVersion: v1\nkind: Pod\nmetadata: {name: probe%d}\nspec: {nodeSelector: {wanted: nowhere}, containers: [{name: c, image: none}]}\n' "$i" | k create -f - >/dev/null
  at=$(now)
  until api "/api/v1/explain/pod/default/probe$i" | jq -e '.answer.cause.code // "Unknown" | . != "Unknown"' >/dev/null; do :; done
  echo $(($(now) - at))
done | sort -n | awk '{ a[NR] = $1 } END { printf "a pod is explained after       p50 %d ms, p99 %d ms of %d\n", a[int(NR * 0.5 + 0.5)], a[int(NR * 0.99 + 0.5)], NR }'

# A burst of pods that only the pool can hold.
workload burst "$burst" 1 'nodepool: burst' | k create -f - >/dev/null
made() { [ "$(k get pods -l app=burst -o name | wc -l)" -ge "$burst" ]; }
until_true 300 made || exit 1
planned() { [ "$(api '/api/v1/decisions?limit=1' | jq '.decisions[0].placed // 0')" -ge "$burst" ]; }
until_true 120 planned || { echo "no plan for the burst"; exit 1; }
last=$(k get events -n default --field-selector reason=SuccessfulCreate -o json | jq -r '[.items[] | (.series.lastObservedTime // .lastTimestamp // .eventTime // empty)] | max')
at=$(api '/api/v1/decisions?limit=1' | jq -r '.decisions[0].at')
echo "plan for $burst pods at         $at; the last pod was made about $last (whole seconds)"
awk '/VmHWM/ { high = $2 / 1024 } /VmRSS/ { now = $2 / 1024 } END { printf "memory                       %d MB now, %d MB at most\n", now, high }' "/proc/$server_pid/status"
