#!/usr/bin/env bash
# A real Kubernetes control plane on 127.0.0.1: etcd, kube-apiserver, kube-controller-manager, kube-scheduler
# and, when asked, kwok. Several can run side by side: each has its own directory and takes free ports.
#
#   cluster.sh run DIR            starts it, prints "ready", stops and removes it when standard input ends
#                                 (so that it never outlives the program that started it) or on a signal
#   cluster.sh up DIR             starts it and returns; DIR is kept
#   cluster.sh down DIR           stops what `up` started and removes DIR
#   cluster.sh restart DIR NAME [FLAG...]
#                                 kills one component with -9 and starts it again on the same ports, with these flags too
#   cluster.sh forget DIR         makes etcd forget everything but the present, as when it was compacted while
#                                 nobody watched: whoever goes on from an older version is told that it is gone
#
# DIR/admin.kubeconfig is an administrator's, DIR/env can be sourced, DIR/log has a file per component.
#   KWOK=yes                      also run kwok: it plays the kubelet of nodes annotated kwok.x-k8s.io/node=fake
#   NODE_GRACE=50s NODE_PERIOD=5s how soon a silent node is marked by the controller manager
#   APISERVER_ARGS="..."          more flags for kube-apiserver
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
usage() { sed -n '2,18s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
[ $# -ge 2 ] || usage
verb=$1
mkdir -p "$2" && dir=$(cd "$2" && pwd) || exit 1
pki=$dir/pki

say() { echo "cluster: $*" >&2; }

# key NAME : a fresh private key.
key() { openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$pki/$1.key" 2>/dev/null ||
  openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$pki/$1.key" 2>/dev/null; }

# authority NAME : a certificate authority that signs itself.
authority() {
  key "$1" && openssl req -x509 -new -sha256 -days 30 -key "$pki/$1.key" -subj "/CN=test $1" -out "$pki/$1.crt" \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign
}

# signed NAME AUTHORITY SUBJECT USAGE [NAMES] : a certificate of that authority.
signed() {
  key "$1" || return
  local extensions="basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=$4"
  [ -n "${5:-}" ] && extensions+="\nsubjectAltName=$5"
  openssl req -new -sha256 -key "$pki/$1.key" -subj "$3" |
    openssl x509 -req -sha256 -days 30 -CA "$pki/$2.crt" -CAkey "$pki/$2.key" -set_serial "0x$(openssl rand -hex 8)" \
      -extfile <(printf '%b\n' "$extensions") -out "$pki/$1.crt" 2>/dev/null
}

# kubeconfig FILE CERTIFICATE : how that certificate's owner reaches the API server.
kubeconfig() {
  cat >"$1" <<YAML
apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: "https://127.0.0.1:$api_port", certificate-authority: "$pki/ca.crt"}}]
users: [{name: $2, user: {client-certificate: "$pki/$2.crt", client-key: "$pki/$2.key"}}]
contexts: [{name: test, context: {cluster: test, user: $2}}]
YAML
}

make_identities() {
  mkdir -p "$pki" && chmod 700 "$pki"
  authority ca && authority front-proxy-ca &&
    signed apiserver ca /CN=kube-apiserver serverAuth "IP:127.0.0.1,IP:10.96.0.1,DNS:localhost,DNS:kubernetes.default.svc" &&
    signed front-proxy front-proxy-ca /CN=front-proxy clientAuth &&
    signed admin ca /O=system:masters/CN=admin clientAuth &&
    signed kwok ca /O=system:masters/CN=kwok clientAuth &&
    signed controller-manager ca /CN=system:kube-controller-manager clientAuth &&
    signed scheduler ca /CN=system:kube-scheduler clientAuth &&
    key service-account && openssl pkey -in "$pki/service-account.key" -pubout -out "$pki/service-account.pub"
}

# take_ports : six free ports that the kernel gives to nobody who connects somewhere. One of the others could go to a client
# of a component that is being restarted, perhaps by connecting to itself, and then the component has no port.
take_ports() {
  read -r etcd_port peer_port api_port manager_port scheduler_port kwok_port < <(python3 -c '
import random, socket
low = int(open("/proc/sys/net/ipv4/ip_local_port_range").read().split()[0])
held = []
for port in random.sample(range(10000, low), 1000):
    one = socket.socket()
    try: one.bind(("127.0.0.1", port))
    except OSError: continue
    held.append(one)
    if len(held) == 6: break
print(*(one.getsockname()[1] for one in held))')
  [ -n "$kwok_port" ]
}

# launch NAME COMMAND... : in the background, in a session of its own, with its command kept for a restart.
launch() {
  local name=$1; shift
  printf '%s\0' "$@" >"$dir/cmd/$name"
  setsid "$@" >>"$dir/log/$name.log" 2>&1 </dev/null &
  echo $! >"$dir/pid/$name"
  disown # the shell need not announce its end
}

alive() { [ -e "$dir/pid/$1" ] && kill -0 "$(cat "$dir/pid/$1")" 2>/dev/null; }

# answers NAME URL CURL-OPTIONS... : waits until the component answers 200, or fails with the end of its log.
answers() {
  local name=$1 url=$2 tries; shift 2
  for ((tries = 0; tries < 1800; tries++)); do
    [ "$(curl -s -o /dev/null -m 5 -w '%{http_code}' "$@" "$url")" = 200 ] && return 0
    alive "$name" || break
    sleep 0.1
  done
  say "$name did not get ready; the end of its log:"
  tail -n 15 "$dir/log/$name.log" >&2
  return 1
}

start() {
  mkdir -p "$dir/log" "$dir/pid" "$dir/cmd"
  if compgen -G "$dir/pid/*" >/dev/null; then say "$dir is in use; run: cluster.sh down $dir"; return 1; fi
  names=(etcd kube-apiserver kube-controller-manager kube-scheduler kubectl)
  [ "${KWOK:-no}" = yes ] && names+=(kwok)
  bin=$("$here/../peers/build.sh" "${names[@]}") || return 1
  take_ports || return 1
  make_identities || { say "openssl could not make the certificates"; return 1; }
  local who api=https://127.0.0.1:$api_port
  for who in admin kwok controller-manager scheduler; do kubeconfig "$dir/$who.kubeconfig" $who; done
  local admin=(--cacert "$pki/ca.crt" --cert "$pki/admin.crt" --key "$pki/admin.key")

  launch etcd "$bin/etcd" --name test --data-dir "$dir/etcd" --unsafe-no-fsync --log-level warn \
    --listen-client-urls "http://127.0.0.1:$etcd_port" --advertise-client-urls "http://127.0.0.1:$etcd_port" \
    --listen-peer-urls "http://127.0.0.1:$peer_port" --initial-advertise-peer-urls "http://127.0.0.1:$peer_port" \
    --initial-cluster "test=http://127.0.0.1:$peer_port"
  answers etcd "http://127.0.0.1:$etcd_port/health" || return 1
  # Requests of service accounts in the namespace `audited` are logged, so that tests can see what they used.
  cat >"$dir/audit-policy.yaml" <<YAML
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata, userGroups: ["system:serviceaccounts:audited"]}, {level: None}]
YAML
  # Loopback may not be an endpoint of the service `kubernetes`, so nobody writes that endpoint.
  # shellcheck disable=SC2086 # the extra flags are words
  launch kube-apiserver "$bin/kube-apiserver" --etcd-servers "http://127.0.0.1:$etcd_port" \
    --bind-address 127.0.0.1 --secure-port "$api_port" --advertise-address 127.0.0.1 --endpoint-reconciler-type none \
    --tls-cert-file "$pki/apiserver.crt" --tls-private-key-file "$pki/apiserver.key" --client-ca-file "$pki/ca.crt" \
    --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --enable-bootstrap-token-auth \
    --service-cluster-ip-range 10.96.0.0/16 --service-account-issuer https://kubernetes.default.svc \
    --service-account-key-file "$pki/service-account.pub" --service-account-signing-key-file "$pki/service-account.key" \
    --requestheader-client-ca-file "$pki/front-proxy-ca.crt" --requestheader-allowed-names front-proxy \
    --requestheader-username-headers X-Remote-User --requestheader-group-headers X-Remote-Group \
    --requestheader-extra-headers-prefix X-Remote-Extra- \
    --proxy-client-cert-file "$pki/front-proxy.crt" --proxy-client-key-file "$pki/front-proxy.key" \
    --audit-policy-file "$dir/audit-policy.yaml" --audit-log-path "$dir/log/audit.log" ${APISERVER_ARGS:-}
  answers kube-apiserver "$api/readyz" "${admin[@]}" || return 1
  # Their usual limit of 20 requests a second would make the start five seconds longer.
  launch kube-controller-manager "$bin/kube-controller-manager" --kubeconfig "$dir/controller-manager.kubeconfig" \
    --bind-address 127.0.0.1 --secure-port "$manager_port" --leader-elect=false --use-service-account-credentials \
    --controllers '*,bootstrap-signer-controller,token-cleaner-controller' \
    --service-account-private-key-file "$pki/service-account.key" --root-ca-file "$pki/ca.crt" \
    --cluster-signing-cert-file "$pki/ca.crt" --cluster-signing-key-file "$pki/ca.key" \
    --node-monitor-period "${NODE_PERIOD:-5s}" --node-monitor-grace-period "${NODE_GRACE:-50s}" \
    --kube-api-qps 200 --kube-api-burst 400
  launch kube-scheduler "$bin/kube-scheduler" --kubeconfig "$dir/scheduler.kubeconfig" --bind-address 127.0.0.1 \
    --secure-port "$scheduler_port" --leader-elect=false --kube-api-qps 200 --kube-api-burst 400
  if [ "${KWOK:-no}" = yes ]; then
    launch kwok "$bin/kwok" --config "$bin/kwok-stages.yaml" --kubeconfig "$dir/kwok.kubeconfig" \
      --manage-all-nodes=false --manage-nodes-with-annotation-selector kwok.x-k8s.io/node=fake \
      --server-address "127.0.0.1:$kwok_port" --node-ip 127.0.0.1 --cidr 10.200.0.0/16
    answers kwok "http://127.0.0.1:$kwok_port/healthz" || return 1
  fi
  answers kube-controller-manager "https://127.0.0.1:$manager_port/healthz" -k || return 1
  answers kube-scheduler "https://127.0.0.1:$scheduler_port/readyz" -k || return 1
  # Pods can be made once the controllers have made the default service account.
  answers kube-controller-manager "$api/api/v1/namespaces/default/serviceaccounts/default" "${admin[@]}" || return 1
  printf 'export KUBECONFIG=%q PATH=%q:"$PATH"\n' "$dir/admin.kubeconfig" "$bin" >"$dir/env"
  printf '%s\n' "$bin" >"$dir/bin"
}

# stop : by pid, only processes whose command line names this directory, all at once: the state goes too.
stop() {
  local file pid left tries
  for file in "$dir"/pid/*; do
    [ -e "$file" ] || continue
    pid=$(cat "$file")
    grep -qaF "$dir" "/proc/$pid/cmdline" 2>/dev/null && kill -CONT "$pid" 2>/dev/null && kill -KILL "$pid" 2>/dev/null
  done
  for ((tries = 0; tries < 200; tries++)); do # a killed process keeps its sockets until its last thread is gone
    left=0
    for file in "$dir"/pid/*; do
      [ -e "$file" ] && grep -qaF "$dir" "/proc/$(cat "$file")/cmdline" 2>/dev/null && left=1
    done
    [ $left = 0 ] && break
    sleep 0.05
  done
  rm -rf "$dir"
}

# ended NAME : whether nothing of the component is left. A process whose first thread is a zombie may still have others, which
# hold its ports.
ended() {
  local process=/proc/$(cat "$dir/pid/$1")
  ! alive "$1" || { grep -q '^State:.Z' "$process/status" 2>/dev/null && [ "$(ls "$process/task" 2>/dev/null | wc -l)" -le 1 ]; }
}

restart() {
  local name=$1 command tries; shift
  alive "$name" && kill -CONT "$(cat "$dir/pid/$name")" && kill -KILL "$(cat "$dir/pid/$name")"
  until ended "$name"; do sleep 0.05; done
  mapfile -d '' command <"$dir/cmd/$name"
  for tries in 1 2 3; do
    launch "$name" "${command[@]}" "$@"
    [ "$name" = kube-apiserver ] || return 0
    answers "$name" "$(sed -n 's/.*server: "\([^"]*\)".*/\1/p' "$dir/admin.kubeconfig")/readyz" \
      --cacert "$pki/ca.crt" --cert "$pki/admin.crt" --key "$pki/admin.key" && return 0
    # It may have found its port taken for a moment; one that is alive and does not answer stays as it is.
    alive "$name" && ! ended "$name" && return 1
    sleep 1
  done
  return 1
}

forget() {
  local endpoint key=/not-of-kubernetes/forget revision
  endpoint=$(tr '\0' '\n' <"$dir/cmd/etcd" | sed -n '/^--advertise-client-urls$/{n;p}')
  bin=$("$here/../peers/build.sh" etcdctl) || return 1
  # A revision that no object has: the API server begins after it.
  "$bin/etcdctl" --endpoints "$endpoint" put "$key" x >/dev/null && "$bin/etcdctl" --endpoints "$endpoint" del "$key" >/dev/null &&
    revision=$("$bin/etcdctl" --endpoints "$endpoint" get "$key" -w json | sed -n 's/.*"revision":\([0-9]*\).*/\1/p') &&
    "$bin/etcdctl" --endpoints "$endpoint" compact "$revision" >/dev/null
}

case $verb in
  up) start || { stop; exit 1; }; say "ready; use it with:  . $dir/env" ;;
  down) stop ;;
  restart) [ $# -ge 3 ] || usage; restart "${@:3}" ;;
  forget) forget ;;
  run)
    # Whoever started this may die at any moment, also before it is ready: the end of standard input says so.
    { while read -r _ || [ $? -gt 128 ]; do :; done; kill -TERM $$ 2>/dev/null; } <&0 >/dev/null 2>&1 & listener=$!
    trap 'trap "" INT TERM HUP PIPE; kill "$listener" 2>/dev/null; stop; exit 0' INT TERM HUP PIPE
    start || { kill "$listener" 2>/dev/null; stop; exit 1; }
    echo ready
    say "ready; use it in another shell with:  . $dir/env   (end it with Ctrl-C)"
    while :; do wait "$listener"; done ;; # the trap ends it
  *) usage ;;
esac
