// Every page in every state, in a real browser against the real server. Run with `make browser`, and by scripts/test.sh.
// `ONLY=text` runs the checks whose name contains it, `PARTS=lab,identities,steady,lively` only these parts.
// Pictures are in target/page-shots: look at them.

import assert from 'node:assert/strict';
import { launch } from './browser.mjs';
import { Lab, until } from './lab.mjs';
import { actions } from './actions.mjs';
import { disturbed } from './disturbed.mjs';
import { identities } from './identities.mjs';
import { matrix } from './matrix.mjs';
import { lively, steady } from './story.mjs';
import { clusters, late } from './views.mjs';

const started = Date.now();
let [passed, failed] = [0, 0];
const only = process.env.ONLY ?? '';
const parts = new Set((process.env.PARTS ?? 'lab,identities,steady,lively').split(','));

/** One check. What fails says so with the first lines of why, and the others go on. */
async function check(name, body) {
  if (only && !name.includes(only)) return;
  const at = Date.now();
  try {
    await body();
    passed += 1;
    console.log(`ok    ${name} (${Date.now() - at} ms)`);
  } catch (cause) {
    failed += 1;
    console.log(`FAIL  ${name} (${Date.now() - at} ms)\n      ${String(cause?.message ?? cause).split('\n').slice(0, 14).join('\n      ')}`);
  }
}

/** A part. One that cannot even begin is a failure of its own. */
async function part(name, body) {
  if (!parts.has(name)) return;
  try {
    await body();
  } catch (cause) {
    failed += 1;
    console.log(`FAIL  ${name}\n      ${cause?.stack ?? cause}`);
  }
}

async function pagesOf(lab) {
  // Machines come up, and there is a decision that woke them; those that change nothing may be many until then.
  await until('the fleet', async () => {
    const [overview, decisions] = await Promise.all([lab.get('/api/v1/overview'), lab.get('/api/v1/decisions?limit=20&actions_only=true')]);
    return overview.hosts.on >= 1 && decisions.decisions.some((one) => one.new_nodes > 0);
  });
  await until('history', async () => (await lab.get('/api/v1/history?series=watts')).series[0]?.points.length >= 3);
  const decision = (await lab.get('/api/v1/decisions?limit=1&actions_only=true')).decisions[0].id;
  const made = await until('two decisions', async () => {
    const { decisions } = await lab.get(`/api/v1/decisions?limit=20&cluster_id=${lab.cluster}`);
    return decisions.length >= 2 && decisions.map((one) => one.id).reverse();
  });
  lab.decisions = made;
  return [
    ['overview', '/'],
    ['pools', '/pools'],
    ['pool', `/pools/${lab.pools.web}`],
    ['racks', '/racks'],
    ['host', '/hosts/web-2'],
    ['pending', '/pending'],
    ['decisions', '/decisions'],
    ['decision', `/decisions/${decision}`],
    ['compare', `/decisions/compare?a=${made[0]}&b=${made.at(-1)}`],
    ['what-if', '/what-if?ask=bounds&pool=gpu&min=0&max=4'],
    ['energy', '/energy'],
    ['settings', '/settings'],
  ];
}

const chrome = await launch();
const world = { browser: chrome.browser, check, assert };
let lab;
await part('lab', async () => {
  lab = await Lab.start();
  await lab.fill();
  Object.assign(world, { lab, pages: await pagesOf(lab) });
  console.log(`      the lab is ready after ${Date.now() - started} ms`);
  await matrix(world);
  await actions(world);
  await late(world);
  await clusters(world);
});
// While the server of the lab is gone for a minute, the others go on.
const gone = part('lab', () => disturbed(world));
await part('identities', () => identities(world));
await part('lively', () => lively(world));
await gone;
await part('steady', () => steady(world));
if (failed) console.log(lab?.server?.log?.() ?? '');
await chrome.close();
await lab?.stop();
console.log(`took ${Math.round((Date.now() - started) / 1000)} s`);
console.log(`test result: ${failed ? 'FAILED' : 'ok'}. ${passed} passed; ${failed} failed`);
process.exit(failed ? 1 : 0);
