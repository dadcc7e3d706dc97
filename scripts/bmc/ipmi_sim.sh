#!/usr/bin/env bash
# ipmi_sim.sh DIR PORT : runs OpenIPMI's simulator on 127.0.0.1:PORT with its state in DIR, until killed.
#
# The account is admin / secret (administrator). The machine behind it is
# DIR/chassis.sh: a soft shutdown takes a second. While DIR/ignore-boot exists, boot devices are not kept.
set -euo pipefail
dir=$1 port=$2
mkdir -p "$dir/state"
cat >"$dir/chassis.sh" <<'S'
#!/bin/bash
# ipmi_sim calls: chassis.sh <tag> get <parm>... | set <parm> <value>...; a get answers lines "parm:value".
dir=${0%/*}; op=$2; shift 2
read_or() { if [ -f "$dir/$1" ]; then cat "$dir/$1"; else echo "$2"; fi; }
case $op in
  get) for p in "$@"; do
      case $p in power) echo "power:$(read_or power 0)";; boot) echo "boot:$(read_or boot default)";; *) echo "$p:0";; esac
    done ;;
  set) while [ $# -ge 2 ]; do
      p=$1 v=$2; shift 2
      echo "$p=$v" >>"$dir/calls"
      case $p in
        power) echo "$v" >"$dir/power" ;;
        boot) [ -f "$dir/ignore-boot" ] || echo "$v" >"$dir/boot" ;;
        shutdown) (sleep 1; echo 0 >"$dir/power") >/dev/null 2>&1 & ;;
      esac
    done ;;
esac
exit 0
S
chmod +x "$dir/chassis.sh"
cat >"$dir/lan.conf" <<S
name "labbmc"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 $port
    priv_limit admin
    allowed_auths_callback none md2 md5 straight
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "$dir/chassis.sh 0x20"
  user 1 true "" "" user 10 none md2 md5 straight
  user 2 true "admin" "secret" admin 10 none md2 md5 straight
S
cat >"$dir/sim.emu" <<'S'
mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
sel_enable 0x20 1000 0x0a
mc_enable 0x20
S
exec ipmi_sim -c "$dir/lan.conf" -f "$dir/sim.emu" -s "$dir/state" -n
