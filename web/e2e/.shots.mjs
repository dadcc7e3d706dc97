import { launch, open, settled, shot } from '/work/wt/demo/web/e2e/browser.mjs';
const base = process.env.BASE ?? 'http://127.0.0.1:18080';
const get = async (path) => (await fetch(base + path)).json();
const pools = (await get('/api/v1/nodepools')).nodepools;
const web = pools.find((p) => p.name === 'web');
const decisions = (await get('/api/v1/decisions?limit=50')).decisions;
const d = decisions.find((one) => one.new_nodes > 0) ?? decisions[0];
const bad = process.env.BAD ?? 'web-07';
const ALL = [['overview', '/'], ['racks', '/racks'], ['host', `/hosts/${bad}`], ['host-drain', `/hosts/web-04`], ['pending', '/pending'], ['energy', '/energy'], ['pools', '/pools'], ['pool', `/pools/${web.id}`], ['decisions', '/decisions'], ['decision', `/decisions/${d.id}`], ['what-if', '/what-if?ask=add&count=40&cpu=4&memory=16Gi'], ['settings', '/settings']];
const only = process.env.ONLY?.split(',');
const { browser, close } = await launch();
for (const [width, height, scheme] of JSON.parse(process.env.SIZES ?? '[[1440,900,"light"]]')) {
  w_open: 0; const w = await open(browser, base, { width, height, scheme });
  for (const [name, where] of ALL) {
    if (only && !only.includes(name)) continue;
    await w.to(where); await Promise.race([settled(w.page), w.page.waitForTimeout(9000).then(async () => console.log(name, await w.page.evaluate(() => [...document.querySelectorAll('main [aria-busy="true"]')].map((one) => one.innerText.slice(0, 80)))))]); await w.page.waitForTimeout(1200);
    await shot(w.page, `${name}-${width}-${scheme}`, { fullPage: true });
  }
  if (w.seen.errors.length || w.seen.off.length) console.log(JSON.stringify(w.seen));
  await w.context.close();
}
await close();
process.exit(0);
