// A real server with emulated machines behind real Redfish, on loopback, filled through the API. Nothing is left behind.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, existsSync } from 'node:fs';
import { createServer } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
export const muster = process.env.MUSTER_BIN ?? path.join(root, 'target/debug/muster');
export const ANN = 'ann@example.com';
export const BOB = 'bob@example.com';
/** Text that would do harm if a page ever took it for markup. */
export const MARKUP = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`;

const children = new Set();
/** Whatever ends this process ends what it started. */
for (const signal of ['exit', 'SIGINT', 'SIGTERM'])
  process.on(signal, () => {
    for (const child of children) child.kill('SIGKILL');
    if (signal !== 'exit') process.exit(1);
  });

/** Starts a program and resolves with its first line that `find` wants. */
export function start(args, find, env = {}) {
  if (!existsSync(muster)) throw new Error(`${muster} is missing: cargo build`);
  const child = spawn(muster, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { PATH: process.env.PATH, HOME: os.tmpdir(), ...env } });
  children.add(child);
  let log = '';
  child.stderr.on('data', (text) => (log = (log + text).slice(-20_000)));
  const gone = new Promise((done) => child.on('exit', () => (children.delete(child), done())));
  const ready = new Promise((found, failed) => {
    createInterface({ input: child.stdout }).on('line', (line) => {
      const value = find(line);
      if (value) found(value);
    });
    child.on('exit', (code) => failed(new Error(`muster ${args[0]} ended with ${code}:\n${log}`)));
  });
  const stop = async (signal = 'SIGTERM') => {
    child.kill(signal);
    await gone;
  };
  return { ready, stop, child, log: () => log };
}

/** A free port that the kernel gives to nobody who connects somewhere: its server is started again on it after a minute. */
const freePort = () =>
  new Promise((done) => {
    const attempt = () => {
      const port = 10_000 + Math.floor(Math.random() * 20_000);
      const server = createServer().on('error', attempt).listen(port, '127.0.0.1', () => server.close(() => done(port)));
    };
    attempt();
  });

/** Asks until `wanted` says yes. */
export async function until(what, ask, limit = 300_000) {
  const end = Date.now() + limit;
  let last;
  for (;;) {
    try {
      last = await ask();
      if (last) return last;
    } catch (cause) {
      last = cause;
    }
    if (Date.now() > end) throw new Error(`${what} did not happen; last: ${last instanceof Error ? last.message : JSON.stringify(last)}`);
    await new Promise((done) => setTimeout(done, 150));
  }
}

export class Lab {
  static async start({ hosts = 12 } = {}) {
    const lab = new Lab();
    lab.directory = mkdtempSync(path.join(os.tmpdir(), 'muster-page-'));
    lab.port = await freePort();
    const bmcPort = await freePort();
    const second = 60 + (process.pid % 150);
    lab.emulator = start(['emulate', 'redfish', '--count', String(hosts + 1), '--first', `127.${second}.0.1`, '--port', String(bmcPort), '--boot', '3s'], (line) => /faults: curl (\S+)\/bmcs/.exec(line)?.[1]);
    lab.faults = await lab.emulator.ready;
    /** The last machine is nobody's: for who registers one. */
    lab.spare = hosts;
    lab.address = (n) => `127.${second}.0.${n + 1}:${bmcPort}`;
    await lab.serve();
    return lab;
  }

  async serve() {
    this.server = start(['serve', '--listen', `127.0.0.1:${this.port}`, '--data-dir', this.directory, '--bmc-allow', '127.0.0.0/8', '--set', 'hosts.time-factor=20', '--set', 'log.level=warn'], (line) => /muster serves on (\S+)/.exec(line)?.[1]);
    this.base = await this.server.ready;
  }

  async call(method, where, body, as = ANN, extra = {}) {
    const response = await fetch(this.base + where, { method, headers: { 'X-User-Email': as, ...(body ? { 'Content-Type': 'application/json' } : {}), ...extra }, body: body ? JSON.stringify(body) : undefined });
    const text = await response.text();
    const value = text ? JSON.parse(text) : undefined;
    if (!response.ok) throw new Error(`${method} ${where}: ${response.status} ${text}`);
    return value;
  }
  get = (where, as) => this.call('GET', where, undefined, as);
  post = (where, body, as) => this.call('POST', where, body, as);
  fault = (n, faults) => fetch(`${this.faults}/bmcs/emulated-${String(n).padStart(5, '0')}/faults`, { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(faults) }).then((answer) => { if (!answer.ok) throw new Error(`fault ${n}: ${answer.status}`); });

  /** Three racks, three pools of metal and one of a cloud; one machine of each kind of trouble. */
  async fill() {
    await this.call('PUT', '/api/v1/inventory/config', { energyPriceMicros: 280_000, currency: 'EUR' });
    await this.post('/api/v1/credentials', { name: 'racks', spec: { kind: 'bmc', user: 'admin', password: 'emulated' } });
    const kinds = [
      { pool: 'web', rack: 'a1', hosts: 5, cpu: '32', memory: '128Gi', gpu: 0, idle: 110, most: 420 },
      { pool: 'gpu', rack: 'a2', hosts: 4, cpu: '64', memory: '512Gi', gpu: 8, idle: 640, most: 5200, height: 4 },
      { pool: 'batch', rack: 'b1', hosts: 3, cpu: '96', memory: '384Gi', gpu: 0, idle: 180, most: 700, height: 2 },
    ];
    for (const { rack } of kinds) await this.post('/api/v1/racks', { name: rack, spec: { name: rack, units: 20, wattCap: rack === 'a2' ? 24000 : 6000 } });
    this.cluster = (await this.post('/api/v1/clusters', { name: 'lab', spec: { platform: { type: 'baremetal' }, mode: 'active' } })).id;
    this.pools = {};
    const sizes = { web: 3, gpu: 2, batch: 0 };
    for (const kind of kinds)
      this.pools[kind.pool] = (await this.post(`/api/v1/clusters/${this.cluster}/nodepools`, { name: kind.pool, spec: { platform: { type: 'baremetal', baremetal: { pool: kind.pool } }, nodeCount: sizes[kind.pool], labels: { purpose: kind.pool } } })).id;
    this.pools.burst = (await this.post(`/api/v1/clusters/${this.cluster}/nodepools`, { name: 'burst', spec: { platform: { type: 'gcp', gcp: { machineType: 'n1-standard-4' } }, autoscaling: { enabled: true, minNodes: 0, maxNodes: 8 }, nodeCount: 2 } }).catch(async (cause) => {
      // A cluster of bare metal may refuse a cloud's pool; then it has a cluster of its own.
      if (!String(cause).includes('400')) throw cause;
      const cloud = (await this.post('/api/v1/clusters', { name: 'cloud', spec: { platform: { type: 'gcp' } } })).id;
      return this.post(`/api/v1/clusters/${cloud}/nodepools`, { name: 'burst', spec: { platform: { type: 'gcp', gcp: { machineType: 'n1-standard-4' } }, autoscaling: { enabled: true, minNodes: 0, maxNodes: 8 }, nodeCount: 2 } });
    })).id;
    await this.fault(1, { ignoreReset: true }); // web-2 never comes up
    await this.fault(4, { silent: true }); // web-5 says nothing
    await this.fault(8, { refuseAccount: true }); // gpu-4 refuses the account
    let n = 0;
    for (const kind of kinds) {
      let slot = 1;
      for (let at = 1; at <= kind.hosts; at += 1, n += 1) {
        const spec = { powerInterface: 'redfish', mgmtAddress: this.address(n), pool: kind.pool, rack: kind.rack, slot, height: kind.height ?? 1, macAddress: `02:00:00:00:${kind.rack === 'a1' ? '01' : kind.rack === 'a2' ? '02' : '03'}:${String(at).padStart(2, '0')}`, bmcCredentials: 'racks', tlsVerify: 'insecure', idleWatts: kind.idle, maxWatts: kind.most, resources: { cpu: kind.cpu, memory: kind.memory, gpu: kind.gpu }, deadlines: { minOffTime: '1s', enrolDeadline: '10h', prepareDeadline: '5h', powerConfirmDeadline: n === 1 ? '300s' : '1h', bootDeadline: '5h', callTimeout: '3m', offDebounce: '4s', staleAfter: '1h' } };
        slot += kind.height ?? 1;
        await this.post('/api/v1/hosts', { name: `${kind.pool}-${at}`, spec });
      }
    }
    await this.post('/api/v1/hosts/web-4/hold', { reason: MARKUP });
    await this.post('/api/v1/hosts/batch-3/maintenance', { on: true, reason: 'new fans' });
  }

  async stop() {
    await this.server?.stop('SIGKILL');
    await this.emulator?.stop('SIGKILL');
    rmSync(this.directory, { recursive: true, force: true });
  }
}
