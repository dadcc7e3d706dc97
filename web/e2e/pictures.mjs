// The pictures of the README, made of the demo. Run with `make pictures`; `EVERY=1` makes one of every page in every width
// and theme instead, for whoever works on the page.

import { launch, open, settled, shot } from './browser.mjs';
import { demo } from './demo.mjs';
import { until } from './lab.mjs';

// `DEMO=http://127.0.0.1:8080` looks at one that runs already.
const fleet = process.env.DEMO ? { url: process.env.DEMO, get: async (path) => (await fetch(process.env.DEMO + path)).json(), stop: async () => {} } : await demo();
try {
  const found = (await fleet.get('/api/v1/hosts?limit=100')).hosts;
  const bad = await until('a quarantined server', async () =>
    (await fleet.get('/api/v1/hosts?limit=100')).hosts.find((host) => host.status?.phase === 'quarantined')?.name, 60_000);
  // The morning rises, the batch and the training job are under way.
  await new Promise((done) => setTimeout(done, Number(process.env.WAIT ?? 20) * 1000));
  // And there is something to pay for.
  await until('pods wait for a larger pool', async () => (await fleet.get('/api/v1/pending')).groups.some((group) => group.fixes.some((fix) => fix.target)), 600_000);
  const decisions = (await fleet.get('/api/v1/decisions?limit=50')).decisions;
  const decision = decisions.find((one) => one.new_nodes > 0) ?? decisions[0];
  const pools = (await fleet.get('/api/v1/nodepools')).nodepools;
  const web = pools.find((pool) => pool.name === 'web');
  const question = '/what-if?ask=add&count=40&cpu=4&memory=16Gi';
  const README = [['pending', '/pending'], ['overview', '/'], ['racks', '/racks'], ['host', `/hosts/${bad}`], ['energy', '/energy']];
  const ALL = [...README, ['pools', '/pools'], ['pool', `/pools/${web.id}`], ['decisions', '/decisions'], ['decision', `/decisions/${decision.id}`], ['what-if', question], ['settings', '/settings']];
  const every = process.env.EVERY;
  const only = process.env.ONLY?.split(',');
  const { browser, close } = await launch();
  for (const [width, height] of every ? [[1920, 1080], [1440, 900], [768, 1024], [375, 812]] : [[1440, 900]]) {
    for (const scheme of ['light', 'dark']) {
      const window = await open(browser, fleet.url, { width, height, scheme });
      for (const [name, where] of every ? ALL : README) {
        if (only && !only.includes(name)) continue;
        await window.to(where);
        await settled(window.page);
        if (name === 'pending') await window.page.getByText(/ an hour/).first().waitFor().catch(() => {});
        // Long enough for the page to know how fast time runs.
        await window.page.waitForTimeout(2_500);
        await shot(window.page, every ? `${name}-${width}-${scheme}` : `${name}-${scheme}`);
        if (every) await shot(window.page, `${name}-${width}-${scheme}-whole`, { fullPage: true });
      }
      if (window.seen.errors.length || window.seen.off.length) console.error(window.seen);
      await window.context.close();
    }
  }
  await close();
  console.log(`${found.length} servers`);
} finally {
  await fleet.stop();
}
process.exit(0);
