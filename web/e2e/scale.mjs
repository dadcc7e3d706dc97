// The page at 2,000 hosts and 10,000 pods with 50 changes a second: when it can be used, its longest task afterwards, and
// what its heap grows by. Run with `make page-figures`; the figures are in docs/explanation/page-figures.md.
// SECONDS (60) for the racks, OTHERS (15) for each other page.

import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { gzipSync } from 'node:zlib';
import { launch, open, shot } from './browser.mjs';
import { demo } from './demo.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const dist = path.resolve(here, '..', process.env.PAGE_FROM ?? 'dist');
const [HOSTS, PODS, RATE] = [2000, 10_000, 50];
const BAR = { usable: 2_500, task: 200, heap: 30, bundle: 300 };
const seconds = Number(process.env.SECONDS ?? 60);
const others = Number(process.env.OTHERS ?? 15);

/** What a real server answers about the small fleet of the demo. */
async function recorded() {
  const fleet = await demo(['--speed', '1', '--history', '1h']);
  try {
    const ready = (await fleet.get('/api/v1/hosts?limit=100')).hosts.find((one) => one.status.state === 'ready' && one.status.kubernetesNode);
    const host = ready.name;
    const decision = (await fleet.get('/api/v1/decisions?limit=1&actions_only=true')).decisions[0].id;
    const asked = { hosts: 'hosts?limit=100', racks: 'racks', pools: 'nodepools', overview: 'overview', pending: 'pending', energy: 'energy', me: 'me', signIn: 'sign-in', decisions: 'decisions?limit=100', decision: `decisions/${decision}`, clusters: 'clusters', events: `hosts/${host}/events`, durations: `hosts/${host}/durations`, transcript: `hosts/${host}/transcript`, explain: `explain/host/${host}`, node: `explain/node/${ready.status.kubernetesNode}`, settings: 'settings', audit: 'audit?limit=100', history: 'history?series=demand_cpu,on_cpu,total_cpu,pending,hosts_on,watts,pool_watts,all_on_watts' };
    const found = {};
    for (const [name, where] of Object.entries(asked)) found[name] = await fleet.get(`/api/v1/${where}`);
    found.whatIf = await (await fetch(`${fleet.url}/api/v1/what-if`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{}' })).json();
    return found;
  } finally {
    await fleet.stop();
  }
}

/** One page for a while: usable when its data stand there; then every task and the heap are watched. */
async function measure(browser, base, name, where, length, act) {
  const window = await open(browser, base, { width: 1440, height: 900, init: (context) => context.addInitScript(() => {
    globalThis.tasks = [];
    new PerformanceObserver((list) => globalThis.tasks.push(...list.getEntries().map((one) => [one.startTime, one.duration]))).observe({ type: 'longtask', buffered: true });
    const look = () => {
      const main = document.querySelector('main');
      if (main?.querySelector('.table, .tile, .card, .figure, canvas') && !main.querySelector('[aria-busy="true"], .skeleton')) globalThis.usable = performance.now();
      else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  }) });
  const { page } = window;
  const session = await window.context.newCDPSession(page);
  const heap = async () => {
    await session.send('HeapProfiler.collectGarbage');
    return (await session.send('Runtime.getHeapUsage')).usedSize / 2 ** 20;
  };
  await window.to(where);
  await page.waitForFunction(() => globalThis.usable !== undefined, undefined, { timeout: 60_000 }).catch(async (cause) => { console.error(window.seen.errors, await page.locator('main').innerText().then((text) => text.slice(0, 300))); throw cause; });
  const usable = await page.evaluate(() => globalThis.usable);
  const before = await heap();
  const from = await page.evaluate(() => performance.now());
  const end = Date.now() + length * 1000;
  let turn = 0;
  while (Date.now() < end) {
    await new Promise((done) => setTimeout(done, Math.min(5_000, Math.max(0, end - Date.now()))));
    if (act && Date.now() < end) await act(page, turn++);
  }
  await shot(page, `scale-${name}`);
  // Up to here: collecting the whole heap at once is our doing, not the page's.
  const tasks = await page.evaluate(() => globalThis.tasks);
  const later = tasks.filter(([at]) => at > usable && !(at < from && at + 500 > from)).map(([, duration]) => duration);
  const after = await heap();
  const errors = window.seen.errors.length + window.seen.off.length;
  await window.context.close();
  return { page: name, seconds: length, usable: Math.round(usable), longest: Math.round(Math.max(0, ...later)), over50: later.length, heapBefore: +before.toFixed(1), growth: +(after - before).toFixed(1), errors };
}

const seen = await recorded();
const worker = new Worker(path.join(here, 'scale-server.mjs'), { workerData: { seen, dist, hosts: HOSTS, pods: PODS, rate: RATE } });
const base = await new Promise((done, failed) => (worker.once('message', done), worker.once('error', failed)));
const { browser, close } = await launch();
const bundle = readdirSync(path.join(dist, 'assets')).filter((name) => /\.(js|css)$/.test(name)).reduce((sum, name) => sum + gzipSync(readFileSync(path.join(dist, 'assets', name))).length, 0) / 1024;
/** Somebody who uses it meanwhile. */
const press = async (page, turn) => page.locator('.legend button').nth(turn % 2).click({ timeout: 10_000 });
const PAGES = [['racks', '/racks', seconds, press], ['table', '/racks?view=table', others], ['overview', '/', others], ['pools', '/pools', others], ['pending', '/pending', others], ['host', '/hosts/web-01-00', others], ['decisions', '/decisions', others], ['energy', '/energy', others]];
const only = process.env.ONLY;
const rows = [];
for (const [name, where, length, act] of PAGES.filter(([name]) => !only || only === name)) {
  rows.push(await measure(browser, base, name, where, length, act));
  console.log(JSON.stringify(rows.at(-1)));
}
await close();
await worker.terminate();
console.table(rows);
console.log(`JS + CSS ${bundle.toFixed(1)} KB gzip · ${os.cpus()[0]?.model.trim()}, ${os.cpus().length} processors · load ${os.loadavg().map((one) => one.toFixed(1)).join(' ')}`);
const faults = rows.flatMap((row) => [row.usable > BAR.usable && `${row.page}: usable after ${row.usable} ms`, row.longest > BAR.task && `${row.page}: a task of ${row.longest} ms`, row.growth > BAR.heap && `${row.page}: the heap grew by ${row.growth} MB`, row.errors && `${row.page}: ${row.errors} errors`]).filter(Boolean);
if (bundle > BAR.bundle) faults.push(`JS + CSS are ${bundle.toFixed(1)} KB`);
writeFileSync(path.resolve(here, '../../target/page-figures.json'), JSON.stringify({ at: new Date().toISOString(), bundle, rows }, null, 2));
for (const fault of faults) console.log(`over the bar: ${fault}`);
process.exit(faults.length ? 1 : 0);
