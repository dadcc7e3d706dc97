// The demo in a browser: what the page says of every object is what the API and the command line say; a fix that is clicked
// is made; a slow server, paper, and the way of somebody who sees all this for the first time.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { findings, fits, open, settled, shot } from './browser.mjs';
import { demo } from './demo.mjs';
import { muster, until } from './lab.mjs';
import { views } from './views.mjs';

const run = promisify(execFile);
const DONE = { timeout: 300_000 };

/** Goes on without loading the page anew. */
const go = (page, where) => page.evaluate((href) => {
  history.pushState(null, '', href);
  dispatchEvent(new PopStateEvent('popstate'));
}, where);

/** Without when the planner looked last, which is another moment for everyone who asks. */
const still = (text) => text.replace(/^planner:\n(?: {2}.*\n?)*/m, '').split('\n').map((line) => line.trimEnd()).join('\n').trim();

/** Every object of the demo that can be explained: where it is on the page, in the API and on the command line. */
async function objects(fleet) {
  const [hosts, pools, pending, decisions] = await Promise.all(['/api/v1/hosts?limit=100', '/api/v1/nodepools?limit=100', '/api/v1/pending', '/api/v1/decisions?limit=12'].map(fleet.get));
  const nodes = hosts.hosts.map((one) => one.status?.kubernetesNode).filter(Boolean);
  const pods = pending.groups.flatMap((group) => group.pods.map((pod) => `${pod.namespace}/${pod.name}`));
  return [
    ...hosts.hosts.map((one) => ({ page: `/hosts/${one.name}`, kind: 'host', name: one.name, id: one.name })),
    ...pools.nodepools.map((one) => ({ page: `/pools/${one.id}`, kind: 'pool', name: one.name, id: one.id })),
    ...nodes.map((name) => ({ page: `/explain/node/${name}`, kind: 'node', name, id: name })),
    ...pods.map((name) => ({ page: `/explain/pod/${name}`, kind: 'pod', name, id: name })),
    ...decisions.decisions.map((one) => ({ page: `/decisions/${one.id}`, kind: 'decision', name: one.id, id: one.id })),
  ];
}

export async function steady(world) {
  const { browser, check, assert } = world;
  // As fast as life: what is compared stays as it is for long enough.
  const fleet = await demo(['--speed', '1', '--history', '1h']);
  const window = await open(browser, fleet.url);
  const { page } = window;
  try {
    await check('OPS-U10 of every object of the demo, page, API and `muster explain` say the same', async () => {
      await window.to('/');
      await settled(page);
      const all = await objects(fleet);
      const counts = {};
      for (const one of all) (counts[one.kind] ??= []).push(one);
      for (const kind of ['host', 'pool', 'node', 'pod', 'decision']) assert.ok(counts[kind]?.length, `the demo has a ${kind}`);
      for (const one of all) {
        await go(page, one.page);
        // The planner looks again while we compare: all three are read until they speak of one moment.
        await until(`the same words of ${one.kind} ${one.name}`, async () => {
          const shown = page.locator('.explain');
          const [headline, rest, api, said] = await Promise.all([
            shown.locator('strong').first().textContent(),
            shown.locator('pre').first().textContent(),
            fleet.get(`/api/v1/explain/${one.kind}/${one.id}`),
            run(muster, ['explain', one.kind, one.name, '-o', 'json', '--server', fleet.url]).then(({ stdout }) => JSON.parse(stdout)),
          ]);
          const wanted = still(api.text.split('\n').slice(1).join('\n'));
          if (headline !== api.headline || said.headline !== api.headline) return false;
          if (still(rest) !== wanted || still(said.text.split('\n').slice(1).join('\n')) !== wanted) return false;
          return JSON.stringify(said.answer) === JSON.stringify(api.answer);
        });
      }
      // And the figures on their pages.
      await go(page, '/pools');
      for (const pool of (await fleet.get('/api/v1/nodepools')).nodepools) {
        await until(`pool ${pool.name} as the API has it`, async () => {
          const now = await fleet.get(`/api/v1/nodepools/${pool.id}`);
          const cells = page.getByRole('row').filter({ has: page.getByRole('link', { name: pool.name, exact: true }) }).getByRole('cell');
          const [health, ready, desired] = await Promise.all([1, 2, 3].map((at) => cells.nth(at).innerText()));
          return health.trim() === now.status.health && ready.trim() === String(now.status.ready_nodes) && desired.trim() === String(now.status.desired_nodes);
        });
      }
      await go(page, '/pending');
      for (const group of (await fleet.get('/api/v1/pending')).groups) await page.getByRole('heading', { name: group.headline }).waitFor(DONE);
      console.log(`      ${Object.entries(counts).map(([kind, list]) => `${list.length} ${kind}s`).join(', ')}`);
    });

    await check('a newcomer finds what waits and why, and what it would cost', async () => {
      await window.to('/');
      await settled(page);
      await page.getByRole('link', { name: /warehouse-export/ }).first().click();
      await page.getByText(/needs 768 GiB/).first().waitFor();
      assert.ok(!/\d{4,}m\b|\d{4,}Mi\b/.test(await page.locator('main h2, main strong').allInnerTexts().then((all) => all.join('\n'))), 'amounts as people say them');
      await window.to('/what-if?ask=set&set=ci.max=3');
      await page.getByText('Answered in').waitFor(DONE);
      assert.match(await page.locator('main').innerText(), /muster simulate --live --set ci\.max=3/);
      await shot(page, 'demo-what-if');
    });

    await check('the command of what-if answers what the page answers', async () => {
      const text = await page.locator('form .command code').innerText();
      const { stdout } = await run(muster, [...text.split(' ').slice(1), '-o', 'json']);
      const said = JSON.parse(stdout);
      assert.equal(said.nothing_changed, true);
      assert.equal(said.question, (await page.locator('.card .small.muted').last().innerText()).split('. Answered')[0]);
    });

    await check('what destroys lists exactly the pods that it hits, and the host shows them', async () => {
      const ready = (await fleet.get('/api/v1/hosts?limit=100')).hosts.filter((one) => one.status?.kubernetesNode && one.status.state === 'ready' && !one.spec.hold);
      const pods = async (one) => (await fleet.get(`/api/v1/explain/node/${one.status.kubernetesNode}`)).answer.pods;
      let host;
      for (const one of ready) if (!host && (await pods(one)).length >= 2) host = one;
      assert.ok(host, 'a host with two pods');
      await window.to(`/hosts/${host.name}`);
      const dialog = page.getByRole('dialog');
      // Which pods those are may change between two looks.
      await until('the pods of the host', async () => {
        await page.getByRole('button', { name: 'Power off', exact: true }).click();
        await dialog.getByText(/\d pods?:/).waitFor(DONE);
        const [text, page_, now] = [await dialog.innerText(), await page.locator('main').innerText(), await pods(host)];
        await shot(page, 'demo-power-off');
        await page.keyboard.press('Escape');
        await dialog.waitFor({ state: 'detached' });
        return text.includes(`${now.length} pods: ${now.join(', ')}`) && now.slice(0, 12).every((pod) => page_.includes(pod));
      });
      await shot(page, 'demo-host', { fullPage: true });
    });

    await check('the cause of a decision is a picture, and a list for whoever does not see it', async () => {
      const one = (await fleet.get('/api/v1/decisions?limit=50&actions_only=true')).decisions[0];
      await window.to(`/decisions/${one.id}`);
      await settled(page);
      for (const title of ['What had changed', 'What was decided', 'What came of it']) await page.getByRole('heading', { name: title }).waitFor();
      assert.ok((await page.locator('.causes svg path').count()) >= 2, 'lines between the boxes');
      const whole = await fleet.get(`/api/v1/decisions/${one.id}`);
      const host = whole.actions.find((action) => action.host)?.host;
      if (host) assert.ok((await page.locator('.causes').innerText()).includes(host), host);
      assert.deepEqual(await findings(page), [], 'axe');
      await shot(page, 'demo-causes');
    });

    await views({ check, assert, window, fleet });

    await check('on paper: the content alone, whole and light', async () => {
      for (const [name, where] of [['overview', '/'], ['pending', '/pending'], ['host', '/hosts/web-01'], ['racks', '/racks']]) {
        await window.to(where);
        await settled(page);
        await page.emulateMedia({ media: 'print', colorScheme: 'dark' });
        await page.setViewportSize({ width: 760, height: 1050 });
        for (const hidden of ['nav', '.bar']) assert.equal(await page.locator(hidden).first().isVisible(), false, `${name}: ${hidden}`);
        assert.ok(await page.locator('.paper').isVisible(), 'says what it is and of when');
        const light = await page.evaluate(() => { const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true }); canvas.fillStyle = getComputedStyle(document.documentElement).backgroundColor; canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data[0]; });
        assert.ok(light > 200, `${name} is light on paper: ${light}`);
        await fits(page);
        await shot(page, `paper-${name}`, { fullPage: true });
        await page.emulateMedia({ media: 'screen', colorScheme: 'light' });
        await page.setViewportSize({ width: 1280, height: 860 });
      }
    });

    await check('a server that takes 3 s for every answer: shapes at once, a word after a while, then the data', async () => {
      // Three seconds, and on a busy machine for as long as it takes to see what is said meanwhile.
      let seen;
      const read = new Promise((done) => (seen = done));
      const slow = await open(browser, fleet.url, { init: (context) => context.route('**/api/v1/**', async (route) => {
        if (/\/(stream|sign-in|me)/.test(route.request().url())) return route.fallback();
        await Promise.all([read, new Promise((done) => setTimeout(done, 3_000))]);
        return route.continue().catch(() => {});
      }) });
      await slow.to('/pools');
      await slow.page.locator('main .skeleton').first().waitFor();
      assert.equal(await slow.page.locator('main [aria-busy="true"]').count() >= 1, true);
      await slow.page.getByText('The server takes its time').first().waitFor(DONE);
      await shot(slow.page, 'pools-slow');
      seen();
      await slow.page.getByRole('link', { name: 'web', exact: true }).waitFor(DONE);
      await settled(slow.page);
      await slow.page.locator('.banner.stale').waitFor({ state: 'detached' });
      assert.deepEqual(slow.seen.errors, []);
      await slow.context.close();
    });

    await check('the demo: zero console errors and zero requests off the origin', async () => {
      assert.deepEqual(window.seen.errors, []);
      assert.deepEqual(window.seen.off, []);
    });
  } finally {
    await window.context.close();
    await fleet.stop();
  }
}

export async function lively(world) {
  const { browser, check, assert } = world;
  const fleet = await demo(['--speed', '60', '--history', '1h']);
  const window = await open(browser, fleet.url);
  const { page } = window;
  try {
    // At noon more builds wait than the maximum of their pool lets in.
    const wanted = (pending) => pending.groups.find((group) => !group.helped && group.fixes.some((fix) => fix.object === 'nodepools/ci' && fix.target));
    await until('builds wait for a larger pool', async () => wanted(await fleet.get('/api/v1/pending')), 1_200_000);
    await check('OPS-U10 of every pod that waits, page, API and `muster explain` give the same cause', async () => {
      await window.to('/pending');
      await settled(page);
      // Time runs here: a pod that has got its place meanwhile is no longer among those that wait.
      const waits = async (name) => (await fleet.get('/api/v1/pending')).groups.some((group) => group.pods.some((pod) => `${pod.namespace}/${pod.name}` === name));
      // And those that waited a moment ago may have theirs: others follow.
      const names = await until('pods wait for two reasons', async () => {
        const { groups } = await fleet.get('/api/v1/pending');
        return groups.length >= 2 && groups.flatMap((group) => group.pods.slice(0, 4).map((pod) => `${pod.namespace}/${pod.name}`));
      }, 1_200_000);
      for (const name of names) {
        await go(page, `/explain/pod/${name}`);
        await until(`the same cause of ${name}`, async () => {
          const [shown, api, said] = await Promise.all([
            page.locator('.explain strong').first().textContent({ timeout: 5_000 }),
            fleet.get(`/api/v1/explain/pod/${name}`),
            run(muster, ['explain', 'pod', name, '-o', 'json', '--server', fleet.url]).then(({ stdout }) => JSON.parse(stdout)),
          ]);
          return (shown === api.headline && said.headline === api.headline && said.answer?.cause?.code === api.answer?.cause?.code) || !(await waits(name));
        });
      }
      console.log(`      ${names.length} pods`);
    });

    await check('a fix of pending pods that is applied from the page is made, and the pods get their places', async () => {
      await window.to('/pending');
      const card = page.locator('li.card').filter({ hasText: 'raise maxNodes of pool ci' });
      await card.getByText('Would cost:').first().waitFor(DONE);
      await card.getByText(/machine.* at rest/).first().waitFor(DONE);
      await shot(page, 'demo-pending');
      const before = (await fleet.get('/api/v1/nodepools')).nodepools.find((pool) => pool.name === 'ci').spec.autoscaling.maxNodes;
      await card.getByRole('button', { name: 'Apply…' }).first().click();
      const dialog = page.getByRole('dialog');
      await dialog.getByText('maxNodes').first().waitFor();
      await shot(page, 'demo-fix');
      await dialog.getByRole('button', { name: 'Apply', exact: true }).click();
      await dialog.waitFor({ state: 'detached', ...DONE });
      const after = (await fleet.get('/api/v1/nodepools')).nodepools.find((pool) => pool.name === 'ci').spec.autoscaling.maxNodes;
      assert.ok(after > before, `${before} → ${after}`);
      await until('the pool grows beyond its old maximum', async () => (await fleet.get('/api/v1/nodepools')).nodepools.find((pool) => pool.name === 'ci').status.desired_nodes > before, 600_000);
      const audit = (await fleet.get('/api/v1/audit?limit=100')).lines;
      assert.ok(audit.some((line) => line.actor === 'user@example.com' && /patch|update/.test(line.verb)), 'the audit has it');
      assert.deepEqual(window.seen.errors, []);
    });
  } finally {
    await window.context.close();
    await fleet.stop();
  }
}
