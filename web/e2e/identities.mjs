// Signing in for each way in which callers prove who they are, and what a role may not do.

import { execFileSync } from 'node:child_process';
import { createHash, createSign, generateKeyPairSync } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { request as overTls } from 'node:https';
import os from 'node:os';
import path from 'node:path';
import { findings, open, settled, shot } from './browser.mjs';
import { start, until } from './lab.mjs';

const [OLGA, VIC] = ['olga@example.com', 'vic@example.com'];
const BINDINGS = [{ user: OLGA, project: 'team', role: 'admin' }, { user: VIC, project: 'team', role: 'viewer' }, { user: 'olga', project: 'team', role: 'admin' }];
const REFUSED = /Failed to load resource/;

/** A server of its own with one pool, filled by whoever `send` speaks for. */
async function served(directory, args, send) {
  const server = start(['serve', '--listen', '127.0.0.1:0', '--store', 'memory', '--data-dir', mkdtempSync(path.join(directory, 'data-')), '--set', `auth.bindings=${JSON.stringify(BINDINGS)}`, '--set', 'log.level=warn', ...args], (line) => /muster serves on (\S+)/.exec(line)?.[1]);
  const base = await server.ready;
  if (send) {
    const post = async (where, body) => {
      const answer = await fetch(base + where, { method: 'POST', headers: { 'Content-Type': 'application/json', ...send }, body: JSON.stringify(body) });
      if (!answer.ok) throw new Error(`${where}: ${answer.status} ${await answer.text()}`);
      return answer.json();
    };
    const cluster = await post('/api/v1/clusters', { name: 'cloud', spec: { platform: { type: 'gcp' } } });
    await post(`/api/v1/clusters/${cluster.id}/nodepools`, { name: 'burst', spec: { platform: { type: 'gcp', gcp: { machineType: 'n1-standard-4' } }, autoscaling: { enabled: true, minNodes: 0, maxNodes: 8 }, nodeCount: 2 } });
  }
  return { base, stop: () => server.stop('SIGKILL') };
}

/** Types a token into the dialog that is open. Whoever signs in begins with a fresh page: that one is waited for. */
async function give(page, token) {
  await page.getByRole('dialog').getByLabel('Token').fill(token);
  await fresh(page, () => page.getByRole('dialog').getByRole('button', { name: 'Sign in', exact: true }).click());
}

/** Does what loads the page anew, and waits until the old one is gone. */
async function fresh(page, body) {
  await page.evaluate(() => (globalThis.before = true));
  await body();
  await page.waitForFunction(() => globalThis.before === undefined && document.readyState !== 'loading');
}

/** What a viewer and an administrator of the project see of one pool: the same, but for what they may do. */
async function roles({ assert }, browser, base, name, { admin, viewer }) {
  const window = await open(browser, base);
  window.seen.noise = REFUSED;
  const { page } = window;
  await window.to('/pools');
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Token').waitFor();
  await shot(page, `sign-in-${name}`);
  assert.deepEqual(await findings(page), [], 'axe');
  await give(page, 'made-up');
  await page.getByRole('dialog').locator('.bad').waitFor();
  await give(page, viewer);
  const scale = page.getByRole('row').filter({ hasText: 'burst' }).getByRole('button', { name: 'Scale' });
  await scale.waitFor();
  await until('the viewer may not scale', () => scale.isDisabled());
  assert.match((await scale.getAttribute('title')) ?? '', /Takes the role (admin or )?operator/);
  await page.getByText(/takes the role admin or operator/).first().waitFor();
  await shot(page, `viewer-${name}`);
  assert.deepEqual(await findings(page), [], 'axe');
  // Signing out forgets the token, and the next one counts.
  await page.getByRole('button', { name: /vic|system:serviceaccount:team:vic/ }).click();
  await page.getByRole('dialog').getByText('viewer').waitFor();
  await fresh(page, () => page.getByRole('dialog').getByRole('button', { name: 'Sign out' }).click());
  await page.getByRole('dialog').getByLabel('Token').waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.getItem('muster.token')), null);
  await give(page, admin);
  await scale.waitFor();
  await until('the administrator may scale', async () => !(await scale.isDisabled()));
  assert.deepEqual(window.seen.errors, []);
  assert.deepEqual(window.seen.off, []);
  return window;
}

/** The server forgives clocks that differ by a minute: a token lives that much longer than it says. */
const FORGIVEN = 60;

/** A token runs out under an open page with something typed: the page says so, keeps it, and goes on after signing in. */
async function runsOut({ assert }, browser, base, token) {
  const short = token(75 - FORGIVEN);
  const window = await open(browser, base, { init: (context) => context.addInitScript((text) => { if (location.protocol.startsWith('http') && !sessionStorage.getItem('muster.token')) sessionStorage.setItem('muster.token', text); }, short) });
  window.seen.noise = REFUSED;
  const { page } = window;
  await window.to('/pools?q=bur&sort=name');
  await page.evaluate(() => (globalThis.stays = true));
  await page.getByRole('row').filter({ hasText: 'burst' }).getByRole('button', { name: 'Scale' }).click();
  const scale = page.getByRole('dialog').filter({ hasText: 'Scale burst' });
  await scale.getByLabel('Nodes').fill('5');
  // Nobody clicks: the page finds out by itself.
  const again = page.getByRole('dialog').filter({ hasText: 'Sign in again' });
  await again.getByText('your sign-in has run out').waitFor({ timeout: 400_000 });
  await page.locator('.banner').getByText('Your sign-in has run out').waitFor();
  assert.equal((await fetch(`${base}/api/v1/me`, { headers: { Authorization: `Bearer ${short}` } })).status, 401);
  await shot(page, 'sign-in-again');
  assert.deepEqual(await findings(page), [], 'axe');
  // What does not help says so, and asks on.
  await again.getByLabel('Token').fill('made-up');
  await again.getByRole('button', { name: 'Sign in', exact: true }).click();
  await again.locator('.bad').waitFor();
  assert.equal(await scale.getByLabel('Nodes').inputValue(), '5');
  await again.getByLabel('Token').fill(token(3600));
  await again.getByRole('button', { name: 'Sign in', exact: true }).click();
  await again.waitFor({ state: 'detached' });
  await page.locator('.banner.stale').waitFor({ state: 'detached' });
  assert.equal(await page.evaluate(() => globalThis.stays), true, 'without a reload');
  assert.ok(page.url().endsWith('/pools?q=bur&sort=name'), page.url());
  assert.equal(await scale.getByLabel('Nodes').inputValue(), '5', 'what was typed is still there');
  await scale.getByRole('button', { name: 'Scale', exact: true }).click();
  await scale.waitFor({ state: 'detached' });
  await page.getByRole('row').filter({ hasText: 'burst' }).getByRole('cell').nth(3).getByText('5', { exact: true }).waitFor();
  await page.locator('.dot').getByText(/^live/).waitFor();
  assert.deepEqual(window.seen.errors, []);
  assert.deepEqual(window.seen.off, []);
  await window.context.close();
}

export async function identities(world) {
  const { browser, check, assert } = world;
  const directory = mkdtempSync(path.join(os.tmpdir(), 'muster-sign-in-'));
  const file = (name, text) => (writeFileSync(path.join(directory, name), text), path.join(directory, name));
  try {
    await check('signing in by token', async () => {
      const digest = (token) => createHash('sha256').update(token).digest('hex');
      const tokens = [{ user: OLGA, sha256: digest('olgas-token') }, { user: VIC, sha256: digest('vics-token') }];
      const server = await served(directory, ['--auth-mode', 'token', '--set', `auth.tokens=${JSON.stringify(tokens)}`], { Authorization: 'Bearer olgas-token' });
      const window = await roles(world, browser, server.base, 'token', { admin: 'olgas-token', viewer: 'vics-token' });
      await window.context.close();
      await server.stop();
    });

    await check('signing in by OIDC, and again when the token has run out', async () => {
      const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
      const keys = { keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'one', alg: 'RS256', use: 'sig' }] };
      const issuer = createServer((asked, answer) => {
        answer.setHeader('Content-Type', 'application/json');
        answer.end(JSON.stringify(asked.url?.endsWith('/keys') ? keys : { issuer: url, jwks_uri: `${url}/keys` }));
      });
      await new Promise((done) => issuer.listen(0, '127.0.0.1', done));
      const url = `http://127.0.0.1:${issuer.address().port}`;
      const token = (email, seconds) => {
        const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
        const now = Math.floor(Date.now() / 1000);
        const text = `${part({ alg: 'RS256', typ: 'JWT', kid: 'one' })}.${part({ iss: url, aud: 'muster', sub: email, email, email_verified: true, iat: now, nbf: now - 5, exp: now + seconds })}`;
        return `${text}.${createSign('RSA-SHA256').update(text).sign(privateKey).toString('base64url')}`;
      };
      const server = await served(directory, ['--auth-mode', 'oidc', '--set', `auth.oidc.issuer=${url}`, '--set', 'auth.oidc.audience=muster'], { Authorization: `Bearer ${token(OLGA, 3600)}` });
      // While one window waits for its token to run out, the other signs in and out.
      const [window] = await Promise.all([roles(world, browser, server.base, 'oidc', { admin: token(OLGA, 3600), viewer: token(VIC, 3600) }), runsOut(world, browser, server.base, (seconds) => token(OLGA, seconds))]);
      // What has run out is as good as nothing: whoever it was is asked again, where they are.
      await window.page.evaluate((old) => sessionStorage.setItem('muster.token', old), token(OLGA, -3600));
      await window.to('/pools?q=bur');
      await window.page.getByRole('dialog').getByLabel('Token').waitFor();
      await give(window.page, token(OLGA, 3600));
      await window.page.getByRole('link', { name: 'burst' }).waitFor();
      assert.ok(window.page.url().endsWith('/pools?q=bur'), window.page.url());
      await window.context.close();
      await server.stop();
      issuer.close();
    });

    await check("signing in by a cluster's token", async () => {
      // The cluster's part, as its API answers; the real one is met in tests of the server.
      const cluster = createServer(async (asked, answer) => {
        let text = '';
        for await (const piece of asked) text += piece;
        const { spec } = JSON.parse(text || '{}');
        const user = { 'olgas-token': 'system:serviceaccount:team:olga', 'vics-token': 'system:serviceaccount:team:vic' }[spec?.token];
        const may = { 'system:serviceaccount:team:olga': 'admin', 'system:serviceaccount:team:vic': 'viewer' }[spec?.user];
        const status = asked.url?.includes('tokenreviews')
          ? { authenticated: user !== undefined, audiences: ['muster'], user: { username: user ?? '', groups: [] } }
          : { allowed: spec.resourceAttributes.verb === may && spec.resourceAttributes.namespace === 'team' };
        answer.writeHead(201, { 'Content-Type': 'application/json' });
        answer.end(JSON.stringify({ status }));
      });
      await new Promise((done) => cluster.listen(0, '127.0.0.1', done));
      const kubeconfig = file('kubeconfig', JSON.stringify({ apiVersion: 'v1', kind: 'Config', 'current-context': 'c', contexts: [{ name: 'c', context: { cluster: 'c', user: 'u' } }], clusters: [{ name: 'c', cluster: { server: `http://127.0.0.1:${cluster.address().port}` } }], users: [{ name: 'u', user: { token: 'servers-own' } }] }));
      const server = await served(directory, ['--auth-mode', 'k8s', '--set', `auth.k8s.kubeconfig=${kubeconfig}`], { Authorization: 'Bearer olgas-token' });
      const window = await roles(world, browser, server.base, 'k8s', { admin: 'olgas-token', viewer: 'vics-token' });
      await window.context.close();
      await server.stop();
      cluster.close();
    });

    const at = (name) => path.join(directory, name);
    const openssl = (...args) => execFileSync('openssl', args, { stdio: 'pipe' });
    const certify = (name, subject, more = '') => {
      openssl('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', at(`${name}.key`), '-out', at(`${name}.csr`), '-subj', subject);
      file(`${name}.ext`, `basicConstraints=CA:FALSE\n${more}`);
      openssl('x509', '-req', '-in', at(`${name}.csr`), '-CA', at('ca.pem'), '-CAkey', at('ca.key'), '-CAcreateserial', '-days', '2', '-extfile', at(`${name}.ext`), '-out', at(`${name}.pem`));
    };
    openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', at('ca.key'), '-out', at('ca.pem'), '-days', '2', '-subj', '/CN=test authority');
    certify('server', '/CN=localhost', 'subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth');
    certify('olga', '/CN=olga', 'extendedKeyUsage=clientAuth');
    certify('proxy', '/CN=proxy.internal', 'subjectAltName=DNS:proxy.internal\nextendedKeyUsage=clientAuth');
    const tls = ['--set', `tls.certificate=${at('server.pem')}`, '--set', `tls.key=${at('server.key')}`, '--set', `tls.client-authority=${at('ca.pem')}`];

    await check('signing in by client certificate', async () => {
      const server = await served(directory, ['--auth-mode', 'mtls', ...tls]);
      const without = await open(browser, server.base, { more: { ignoreHTTPSErrors: true } });
      without.seen.noise = REFUSED;
      await without.to('/pools');
      await without.page.getByRole('dialog').getByText(/client certificate: choose one in the browser/).waitFor();
      await shot(without.page, 'sign-in-mtls');
      assert.equal(await without.page.getByRole('dialog').getByRole('button', { name: 'Sign in', exact: true }).count(), 0, 'there is nothing to type');
      await without.context.close();
      const window = await open(browser, server.base, { more: { ignoreHTTPSErrors: true, clientCertificates: [{ origin: new URL(server.base).origin, certPath: at('olga.pem'), keyPath: at('olga.key') }] } });
      await window.to('/pools');
      await window.page.getByRole('button', { name: 'olga' }).waitFor();
      await settled(window.page);
      assert.deepEqual(window.seen.errors, []);
      await window.context.close();
      await server.stop();
    });

    await check('signing in by a trusted proxy', async () => {
      const server = await served(directory, ['--auth-mode', 'trusted-proxy', '--set', 'auth.proxies=["proxy.internal"]', ...tls]);
      const direct = await open(browser, server.base, { more: { ignoreHTTPSErrors: true } });
      direct.seen.noise = REFUSED;
      await direct.to('/pools');
      await direct.page.getByRole('dialog').getByText(/open it through that proxy/).waitFor();
      await shot(direct.page, 'sign-in-proxy');
      await direct.context.close();
      const [cert, key, ca] = ['proxy.pem', 'proxy.key', 'ca.pem'].map((name) => readFileSync(at(name)));
      const proxy = createServer((asked, answer) => {
        const sent = overTls(server.base + asked.url, { method: asked.method, headers: { ...asked.headers, 'x-user-email': VIC, host: new URL(server.base).host }, cert, key, ca }, (back) => {
          answer.writeHead(back.statusCode ?? 502, back.headers);
          back.pipe(answer);
        });
        sent.on('error', () => answer.destroy());
        answer.on('close', () => sent.destroy());
        asked.pipe(sent);
      });
      await new Promise((done) => proxy.listen(0, '127.0.0.1', done));
      const window = await open(browser, `http://127.0.0.1:${proxy.address().port}`);
      await window.to('/pools');
      await window.page.getByRole('button', { name: VIC }).waitFor();
      await settled(window.page);
      await window.page.getByText('No pool yet').waitFor();
      assert.deepEqual(window.seen.errors, []);
      await window.context.close();
      await server.stop();
      proxy.closeAllConnections();
      proxy.close();
    });
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}
