// The pictures of the README. Run with `make pictures`.

import { launch, open, settled, shot } from './browser.mjs';
import { ANN, Lab, until } from './lab.mjs';

const lab = await Lab.start();
try {
  await lab.fill();
  await lab.post('/api/v1/hosts/web-4/hold', { reason: 'new memory' });
  await until('the fleet', async () => (await lab.get('/api/v1/overview')).hosts.on >= 3);
  // Long enough for the charts to have a shape.
  for (const size of [1, 3, 2]) {
    await lab.call('POST', `/api/v1/nodepools/${lab.pools.batch}/scale`, { nodeCount: size });
    await new Promise((done) => setTimeout(done, 25_000));
  }
  const { browser, close } = await launch();
  for (const scheme of ['light', 'dark']) {
    const window = await open(browser, lab.base, { as: ANN, width: 1440, height: 900, scheme });
    for (const [name, where] of [['overview', '/'], ['racks', '/racks'], ['host', '/hosts/web-2'], ['energy', '/energy']]) {
      await window.to(where);
      await settled(window.page);
      await window.page.waitForTimeout(600);
      await shot(window.page, `${name}-${scheme}`);
    }
    await window.context.close();
  }
  await close();
} finally {
  await lab.stop();
}
process.exit(0);
