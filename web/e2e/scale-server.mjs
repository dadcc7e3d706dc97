// A fleet of 2,000 hosts and 10,000 pods that changes 50 times a second, made of what a real server answered about a small
// one: each answer has the shape and the size that it has in life. Runs in a thread of its own.

import { createReadStream, existsSync } from 'node:fs';
import { createServer } from 'node:http';
import path from 'node:path';
import { parentPort, workerData } from 'node:worker_threads';

const { seen, dist, hosts: HOSTS, pods: PODS, rate } = workerData;
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.woff2': 'font/woff2' };
const copies = Math.ceil(HOSTS / seen.hosts.hosts.length);
const numbered = (name, n) => `${name}-${String(n).padStart(2, '0')}`;

const hosts = Array.from({ length: copies }, (_, n) => seen.hosts.hosts.map((host) => ({ ...host, name: numbered(host.name, n), id: numbered(host.name, n), spec: { ...host.spec, rack: numbered(host.spec.rack, n), pool: numbered(host.spec.pool, n % 10) }, status: { ...host.status } }))).flat().slice(0, HOSTS);
const texts = hosts.map((host) => JSON.stringify(host));
const racks = Array.from({ length: copies }, (_, n) => seen.racks.racks.map((rack) => ({ ...rack, name: numbered(rack.name, n) }))).flat();
const pools = Array.from({ length: 10 }, (_, n) => seen.pools.nodepools.map((pool, at) => ({ ...pool, id: pool.id.slice(0, -4) + String(n * 100 + at).padStart(4, '0'), name: numbered(pool.name, n) }))).flat();
const GROUPS = 100;
const groups = Array.from({ length: GROUPS }, (_, n) => {
  const one = seen.pending.groups[n % seen.pending.groups.length];
  const names = Array.from({ length: Math.min(100, PODS / GROUPS) }, (_, at) => ({ namespace: 'default', name: `job-${n}-${at}`, since: one.oldest }));
  return { ...one, example: `default/job-${n}-0`, headline: `default/job-${n}-0 (and ${PODS / GROUPS - 1} alike): ${one.headline.split(': ').slice(1).join(': ')}`, count: PODS / GROUPS, pods: names };
});
const cycles = hosts.slice(0, 60).map((host, n) => ({ host: host.name, pool: host.spec.pool, count: 60 - n, budget: 24 }));
const attention = Array.from({ length: 20 }, (_, n) => ({ kind: 'host', subject: hosts[n].name, line: `${hosts[n].name} is quarantined: never joined, 3 of 3`, since: seen.overview.at, link: `/hosts/${hosts[n].name}`, command: `muster acknowledge host ${hosts[n].name}` }));

function overview() {
  const by = {};
  for (const host of hosts) by[host.status.state] = (by[host.status.state] ?? 0) + 1;
  return { ...seen.overview, attention, attention_total: 40, pending: { pods: PODS, hopeless: PODS / 2, unseen_clusters: 0 }, hosts: { ...seen.overview.hosts, total: HOSTS, on: HOSTS - (by.off ?? 0), by_state: by } };
}

let sequence = 1_000_000;
const listeners = new Set();
const STATES = [['off', 'idle', 'off'], ['powering-on', 'booting', 'on'], ['ready', 'serving', 'on'], ['draining', 'evicting', 'on']];
/** One host goes on to its next state. */
function change() {
  const at = Math.floor(Math.random() * hosts.length);
  const host = hosts[at];
  const next = STATES[(STATES.findIndex(([state]) => state === host.status.state) + 1) % STATES.length];
  Object.assign(host.status, { state: next[0], phase: next[1], powerState: next[2], stateSince: new Date().toISOString(), phaseSince: new Date().toISOString(), reason: `change ${sequence}` });
  host.metrics = { ...host.metrics, cpuPermille: { value: Math.floor(Math.random() * 1000), at: new Date().toISOString() }, milliwatts: { value: 100_000 + Math.floor(Math.random() * 200_000), at: new Date().toISOString() } };
  texts[at] = JSON.stringify(host);
  const before = sequence;
  sequence += 1;
  const kind = sequence % 25 === 0 ? 'decisions' : sequence % 10 === 0 ? 'pools' : 'hosts';
  const part = `id: ${sequence}\nevent: change\ndata: ${JSON.stringify({ sequence, after: before, kind, part: 'status', name: host.name, deleted: false })}\n\n`;
  for (const listener of listeners) listener.write(part);
}
let due = performance.now();
setInterval(() => {
  for (; due <= performance.now(); due += 1000 / rate) change();
}, 5);

const decisions = Array.from({ length: 100 }, (_, n) => ({ ...seen.decisions.decisions[n % seen.decisions.decisions.length], id: `d-${n}`, number: n }));
const answers = [
  [/^\/api\/v1\/hosts\/[^/]+\/events/, () => seen.events],
  [/^\/api\/v1\/hosts\/[^/]+\/durations/, () => seen.durations],
  [/^\/api\/v1\/hosts\/[^/]+\/transcript/, () => seen.transcript],
  [/^\/api\/v1\/hosts\/([^/?]+)/, ([, name]) => hosts.find((host) => host.name === name)],
  [/^\/api\/v1\/hosts.*[?&]pool=([^&]+)/, ([, pool]) => ({ hosts: hosts.filter((host) => host.spec.pool === pool), total: HOSTS })],
  [/^\/api\/v1\/racks/, () => ({ racks, total: racks.length })],
  [/^\/api\/v1\/nodepools\/([^/?]+)/, ([, id]) => pools.find((pool) => pool.id === id)],
  [/^\/api\/v1\/nodepools/, () => ({ nodepools: pools, total: pools.length })],
  [/^\/api\/v1\/overview/, overview],
  [/^\/api\/v1\/pending/, () => ({ groups, total: PODS, unseen_clusters: [] })],
  [/^\/api\/v1\/history/, () => seen.history],
  [/^\/api\/v1\/energy/, () => ({ ...seen.energy, cycles, cycles_total: HOSTS })],
  [/^\/api\/v1\/decisions\/([^/?]+)/, () => seen.decision],
  [/^\/api\/v1\/decisions.*[?&]limit=(\d+)/, ([, limit]) => ({ decisions: decisions.slice(0, Number(limit)) })],
  [/^\/api\/v1\/clusters/, () => seen.clusters],
  [/^\/api\/v1\/me/, () => seen.me],
  [/^\/api\/v1\/sign-in/, () => seen.signIn],
  [/^\/api\/v1\/what-if/, () => seen.whatIf],
  [/^\/api\/v1\/explain\/node/, () => seen.node],
  [/^\/api\/v1\/explain/, () => seen.explain],
  [/^\/api\/v1\/settings/, () => seen.settings],
  [/^\/api\/v1\/audit/, () => seen.audit],
];

const server = createServer((asked, answer) => {
  const url = asked.url ?? '/';
  if (url.startsWith('/api/v1/stream')) {
    answer.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' });
    answer.write(`event: resync\ndata: ${JSON.stringify({ sequence })}\n\n`);
    listeners.add(answer);
    answer.on('close', () => listeners.delete(answer));
    return;
  }
  if (url.startsWith('/api/')) {
    answer.setHeader('Content-Type', 'application/json');
    if (/^\/api\/v1\/hosts(\?(?!.*pool=)|$)/.test(url)) return answer.end(`{"hosts":[${texts.slice(0, Number(/[?&]limit=(\d+)/.exec(url)?.[1] ?? 100)).join(',')}],"total":${HOSTS}}`);
    for (const [shape, make] of answers) {
      const found = shape.exec(url);
      const body = found && make(found);
      if (body) return answer.end(JSON.stringify(body));
    }
    return answer.writeHead(404).end('{"error":{"code":"NOT_FOUND","message":"not here"}}');
  }
  const name = url.split('?')[0].slice(1);
  const file = path.join(dist, /\.\w+$/.test(name) ? name : 'index.html');
  if (!existsSync(file)) return answer.writeHead(404).end();
  answer.writeHead(200, { 'Content-Type': TYPES[path.extname(file)] ?? 'application/octet-stream', 'Content-Security-Policy': "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; connect-src 'self'" });
  createReadStream(file).pipe(answer);
});
server.listen(0, '127.0.0.1', () => parentPort.postMessage(`http://127.0.0.1:${server.address().port}`));
