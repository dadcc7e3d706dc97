// What the network and the server can do to an open page: events lost, doubled and in another order; the server gone.

import { open, settled, shot } from './browser.mjs';
import { ANN, until } from './lab.mjs';

export async function disturbed(world) {
  const { lab, browser, check, assert } = world;
  const base = lab.base;

  await check('OPS-U18 events dropped, doubled and reordered: the page ends where the API is', async () => {
    // The stream goes through a hand that drops, doubles and swaps; everything behind it is real.
    const window = await open(browser, base, {
      as: ANN,
      init: (context) =>
        context.addInitScript(() => {
          const real = globalThis.fetch;
          globalThis.mangled = 0;
          globalThis.fetch = async (input, options) => {
            const response = await real(input, options);
            if (!String(input).includes('/api/v1/stream')) return response;
            let rest = '';
            let held;
            let count = 0;
            const hand = new TransformStream({
              transform(piece, out) {
                rest += piece;
                const parts = rest.split('\n\n');
                rest = parts.pop();
                for (const part of parts) {
                  const send = (text) => out.enqueue(`${text}\n\n`);
                  if (!part.includes('event: change')) { send(part); continue; }
                  count += 1;
                  globalThis.mangled = count;
                  if (count % 5 === 1) continue; // lost
                  if (count % 5 === 2) { send(part); send(part); continue; } // doubled
                  if (count % 5 === 3) { held = part; continue; } // later
                  send(part);
                  if (held) { send(held); held = undefined; }
                }
              },
            });
            const body = response.body.pipeThrough(new TextDecoderStream()).pipeThrough(hand).pipeThrough(new TextEncoderStream());
            return new Response(body, { status: response.status, headers: response.headers });
          };
        }),
    });
    await window.to('/hosts/web-3');
    await settled(window.page);
    for (let n = 0; n < 12; n += 1) await lab.post('/api/v1/hosts/web-3/hold', { reason: `change ${n}` });
    await until('the last change is shown', async () => {
      const shown = await window.page.locator('main').innerText();
      return shown.includes('held by ann') && (await window.page.evaluate(() => globalThis.mangled)) >= 5;
    });
    await lab.post('/api/v1/hosts/web-3/release', { reason: 'done' });
    await window.page.getByRole('button', { name: 'Hold', exact: true }).waitFor();
    assert.deepEqual(window.seen.errors, []);
    await window.context.close();
  });

  await check('OPS-U18 the server is gone for 60 s: stale within 5 s, actions off, recovery without a reload', async () => {
    const window = await open(browser, base, { as: ANN });
    window.seen.noise = /Failed to load resource|ERR_CONNECTION_REFUSED|ERR_/;
    const { page } = window;
    await window.to('/pools');
    await settled(page);
    await page.evaluate(() => (globalThis.stays = true));
    const said = (await lab.get('/api/v1/hosts/gpu-4/transcript')).calls;
    assert.ok(said.length > 0, 'something was said to a BMC');
    await lab.server.stop('SIGKILL');
    const gone = Date.now();
    await page.locator('.banner.stale').waitFor();
    console.log(`      stale after ${Date.now() - gone} ms`);
    await shot(page, 'pools-server-gone');
    assert.ok((await page.locator('main').innerText()).includes('burst'), 'what was known stays');
    // After 30 s nothing may be done on the strength of it.
    await until('actions are off', () => page.getByRole('row').filter({ hasText: 'burst' }).getByRole('button', { name: 'Scale' }).isDisabled());
    await shot(page, 'pools-unsafe');
    await until('a minute has passed', () => Date.now() - gone >= 60_000, 90_000);
    assert.ok((await page.locator('main').innerText()).includes('burst'), 'what was known stays');
    await lab.serve();
    const back = Date.now();
    await page.locator('.banner.stale').waitFor({ state: 'detached' });
    console.log(`      recovered ${Date.now() - back} ms after the server`);
    await until('actions are on', async () => !(await page.getByRole('row').filter({ hasText: 'burst' }).getByRole('button', { name: 'Scale' }).isDisabled()));
    assert.equal(await page.evaluate(() => globalThis.stays), true, 'without a reload');
    // What was said to a BMC before is still told.
    const after = await lab.get('/api/v1/hosts/gpu-4/transcript');
    assert.ok(after.calls.some((one) => one.at === said[0].at && one.call === said[0].call) || after.calls.length === 100, JSON.stringify({ said, after }));
    assert.ok(Date.parse(after.since) <= Date.parse(said[0].at), 'and since when');
    const size = 4;
    await lab.call('POST', `/api/v1/nodepools/${lab.pools.burst}/scale`, { nodeCount: size });
    await page.getByRole('row').filter({ hasText: 'burst' }).getByRole('cell').nth(3).getByText(String(size), { exact: true }).waitFor();
    assert.deepEqual(window.seen.errors, []);
    await window.context.close();
  });
}
