#!/usr/bin/env bash
# Whether Muster grows or slows down with time: MINUTES (30) of a served fleet with Redfish servers on loopback, then DAYS (30) of
# a simulated site full of trouble. Memory, open files, threads, exported series and times of answers of the last third are held
# against those of the second; the first is for warming up. Ends with 1 when something grew by more than its bar.
# MUSTER is the binary (target/release/muster, which is built when it is missing).
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root" || exit 1
minutes=${MINUTES:-30} days=${DAYS:-30} muster=${MUSTER:-$root/target/release/muster}
every=5 # seconds between samples
apt_ready; need jq jq; need curl curl
[ -x "$muster" ] || cargo build --release --locked -p muster || exit 1
dir=$(mktemp -d) pid=
finish() { [ -n "$pid" ] && kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; rm -rf "$dir"; }
trap finish EXIT
trap 'exit 130' INT TERM HUP
grown=0
# held FILE COLUMN NAME BAR ALLOWANCE : the median of the last third against that of the second, with a bar in percent and what is
# no growth however small the number is.
held() {
  local line
  line=$(awk -v c="$2" -v bar="$4" -v least="$5" '
    function median(from, to,   n, i, j, t, a) {
      for (i = from; i <= to; i++) a[++n] = v[i]
      for (i = 2; i <= n; i++) { t = a[i]; for (j = i - 1; j > 0 && a[j] > t; j--) a[j + 1] = a[j]; a[j + 1] = t }
      return a[int((n + 1) / 2)]
    }
    { v[NR] = $c }
    END {
      third = int(NR / 3); if (third < 2) { print "too few samples"; exit }
      before = median(third + 1, 2 * third); after = median(2 * third + 1, NR)
      printf "%.4g -> %.4g, %s", before, after, (after - before > least && after > before * (1 + bar / 100)) ? "GROWN" : "kept"
    }' "$1")
  printf '  %-34s %s (bar: +%s %%)\n' "$3" "$line" "$4"
  [[ $line == *kept ]] || grown=1
}
memory() { awk '/^VmRSS/ { print $2 / 1024 }' "/proc/$1/status"; }

echo "a fleet on Redfish, served for $minutes min"
"$muster" demo --log info --emulate wire --history 1h --listen 127.0.0.1:0 >"$dir/out" 2>"$dir/log" & pid=$!
for ((i = 0; i < 600; i++)); do grep -q '^muster demo on ' "$dir/out" && break; kill -0 "$pid" 2>/dev/null || break; sleep 0.5; done
url=$(sed -n 's/^muster demo on //p' "$dir/out")
[ -n "$url" ] || { echo "it does not serve"; tail "$dir/log"; exit 1; }
end=$((SECONDS + minutes * 60))
while [ $SECONDS -lt $end ]; do
  kill -0 "$pid" 2>/dev/null || { echo "it ended"; tail "$dir/log"; exit 1; }
  # What people and pages ask goes on meanwhile.
  slowest=$(for path in overview hosts nodepools decisions; do
    curl -sf -o /dev/null -w '%{time_total}\n' -H 'x-user-email: user@example.com' "$url/api/v1/$path"
  done | sort -g | tail -n 1)
  curl -sf "$url/metrics" >"$dir/metrics" || { echo "no metrics"; exit 1; }
  echo "$(memory "$pid") $(ls "/proc/$pid/fd" | wc -l) $(ls "/proc/$pid/task" | wc -l) $(grep -vc '^#' "$dir/metrics") $slowest" >>"$dir/served"
  sleep $every
done
kill -INT "$pid"; wait "$pid"; code=$?; pid=
[ $code = 0 ] || { echo "it ended with $code"; grown=1; }
held "$dir/served" 1 'memory, MB' 5 4
held "$dir/served" 2 'open files' 0 16
held "$dir/served" 3 'threads' 0 2
held "$dir/served" 4 'exported series' 5 20
held "$dir/served" 5 'slowest of four answers, s' 10 0.02
lines=$(grep -c . "$dir/log") bad=$(grep . "$dir/log" | jq -R 'fromjson? // "bad"' | grep -c '^"bad"$')
echo "  log: $lines lines, $bad of them no JSON"
[ "$bad" = 0 ] || grown=1

echo "$days simulated days of one site"
"$muster" sim fuzz --seeds 0..1 --hours $((days * 24)) --threads 1 >"$dir/days" 2>&1 & pid=$!
while kill -0 "$pid" 2>/dev/null; do memory "$pid" >>"$dir/lived" 2>/dev/null; sleep 0.2; done
wait "$pid"; code=$?; pid=
tail -n 3 "$dir/days"
[ $code = 0 ] || grown=1
held "$dir/lived" 1 'memory, MB' 5 4
exit $grown
