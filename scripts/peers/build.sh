#!/usr/bin/env bash
# build.sh NAME... : builds test peers from pinned Go modules and prints the directory that holds them.
#
# Binaries live outside the tree, in ${MUSTER_CACHE:-~/.cache/muster}/peers/<versions>, so a second
# checkout or a clean build finds them again. Known names: etcd etcdctl etcdutl kube-apiserver
# kube-controller-manager kube-scheduler kubectl kwok. Nothing is built twice: a name that is there is
# skipped, and a lock per name keeps two callers apart.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/versions.env"
cache=${MUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/muster}
out=$cache/peers/kube-$KUBE_VERSION-etcd-$ETCD_VERSION-kwok-$KWOK_VERSION
mkdir -p "$out"
export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-buildvcs=false

minor=${KUBE_VERSION#v1.}; minor=${minor%%.*}
stamp=""
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  stamp+=" -X $package.gitVersion=$KUBE_VERSION -X $package.gitMajor=1 -X $package.gitMinor=$minor"
  stamp+=" -X $package.gitTreeState=clean -X $package.buildDate=1970-01-01T00:00:00Z"
done

build() { # MODULE_DIR PACKAGE NAME LDFLAGS
  local started=$SECONDS
  echo "building $3 from Go modules (once)" >&2
  (cd "$here/$1" && go build -trimpath -ldflags="-s -w $4" -o "$out/.$3.tmp" "$2")
  mv "$out/.$3.tmp" "$out/$3"
  echo "built $3 in $((SECONDS - started)) s" >&2
}

for name in "$@"; do
  [ -x "$out/$name" ] && continue
  exec 9>"$out/.$name.lock"
  flock 9
  [ -x "$out/$name" ] && continue
  case $name in
    etcd) build etcd go.etcd.io/etcd/server/v3 etcd "" ;;
    etcdctl | etcdutl) build etcd "go.etcd.io/etcd/$name/v3" "$name" "" ;;
    kwok)
      # kwok refuses to start without stages; its own module carries the "fast" set.
      (cd "$here/kwok" && go mod download sigs.k8s.io/kwok)
      stages=$(cd "$here/kwok" && go list -m -f '{{.Dir}}' sigs.k8s.io/kwok)/kustomize/stage
      for stage in node/fast/node-initialize node/heartbeat-with-lease/node-heartbeat-with-lease \
        pod/fast/pod-ready pod/fast/pod-complete pod/fast/pod-delete; do
        echo ---
        cat "$stages/$stage.yaml"
      done >"$out/kwok-stages.yaml"
      build kwok sigs.k8s.io/kwok/cmd/kwok kwok "" ;;
    kube-apiserver | kube-controller-manager | kube-scheduler | kubectl)
      build kube "k8s.io/kubernetes/cmd/$name" "$name" "$stamp" ;;
    *) echo "build.sh: unknown peer '$name'" >&2; exit 2 ;;
  esac
done
echo "$out"
