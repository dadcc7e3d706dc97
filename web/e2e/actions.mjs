// What people do: scale, hold, choose many, search, walk by keys, go back, keep two tabs open, sign in.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { findings, fits, open, settled, shot, tolerating } from './browser.mjs';
import { ANN, MARKUP, muster, until } from './lab.mjs';

const run = promisify(execFile);
const DONE = { timeout: 180_000 };

export async function actions(world) {
  const { lab, browser, check, assert } = world;
  const base = lab.base;
  const window = await open(browser, base, { as: ANN });
  const { page } = window;
  const pool = (name) => lab.get(`/api/v1/nodepools/${lab.pools[name]}`);
  const operations = async (name) => (await lab.get(`/api/v1/operations?nodepool_id=${lab.pools[name]}&limit=100`)).operations;

  async function scale(name, to) {
    const row = page.getByRole('row').filter({ has: page.getByRole('link', { name, exact: true }) });
    await row.getByRole('button', { name: 'Scale' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Nodes').fill(String(to));
    return dialog;
  }

  await check('scale to 0 and back: the pool stays on the page and can be scaled again', async () => {
    await window.to('/pools');
    await settled(page);
    for (const to of [0, 2]) {
      const dialog = await scale('burst', to);
      await dialog.getByRole('button', { name: /^Scale/ }).click();
      await dialog.waitFor({ state: 'detached' });
      await until(`size ${to}`, async () => (await pool('burst')).spec.nodeCount === to);
      await page.getByRole('row').filter({ hasText: 'burst' }).getByRole('cell').nth(3).getByText(String(to), { exact: true }).waitFor(DONE);
    }
  });

  await check('sizes outside the bounds cannot be sent', async () => {
    for (const wrong of ['-1', '9', '1.5', '']) {
      const dialog = await scale('burst', wrong);
      assert.equal(await dialog.getByRole('button', { name: /^Scale/ }).isDisabled(), true, wrong);
      await page.keyboard.press('Escape');
      await dialog.waitFor({ state: 'detached' });
    }
    assert.equal((await pool('burst')).spec.nodeCount, 2);
  });

  await check('a double click is one operation', async () => {
    const before = (await operations('burst')).length;
    const dialog = await scale('burst', 3);
    await dialog.getByRole('button', { name: 'Scale', exact: true }).dblclick();
    await dialog.waitFor({ state: 'detached' });
    await until('size 3', async () => (await pool('burst')).spec.nodeCount === 3);
    assert.equal((await operations('burst')).length, before + 1);
  });

  await check('a stale target is refused and says so', async () => {
    const dialog = await scale('burst', 5);
    await lab.call('PATCH', `/api/v1/nodepools/${lab.pools.burst}`, { spec: { labels: { changed: String(Date.now()) } } });
    window.seen.noise = /Failed to load resource/;
    await dialog.getByRole('button', { name: 'Scale', exact: true }).click();
    await dialog.getByRole('alert').waitFor();
    assert.match(await dialog.getByRole('alert').innerText(), /412|not as the request demands/);
    assert.equal((await pool('burst')).spec.nodeCount, 3);
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'detached' });
    window.seen.noise = /^$/;
  });

  await check('a range is chosen in a rack and held together', async () => {
    await window.to('/racks');
    await settled(page);
    await page.locator('#tile-gpu-3').click({ modifiers: ['Control'] });
    await page.locator('#tile-gpu-1').click({ modifiers: ['Shift'] });
    await page.getByText('3 hosts chosen').waitFor();
    await shot(page, 'racks-chosen');
    await page.getByRole('button', { name: 'Act on them' }).click();
    const dialog = page.getByRole('dialog');
    for (const name of ['gpu-1', 'gpu-2', 'gpu-3']) assert.ok((await dialog.innerText()).includes(name), `${name} is listed`);
    assert.ok(!(await dialog.innerText()).includes('gpu-4'));
    await dialog.getByLabel('Reason').fill('firmware');
    await shot(page, 'act-dialog');
    await dialog.getByRole('button', { name: 'Hold', exact: true }).click();
    await dialog.waitFor({ state: 'detached', ...DONE });
    for (const name of ['gpu-1', 'gpu-2', 'gpu-3']) assert.equal((await lab.get(`/api/v1/hosts/${name}`)).spec.hold.reason, 'firmware');
  });

  await check('what destroys is typed, and lists what it hits', async () => {
    await window.to('/hosts/batch-1');
    await settled(page);
    await page.getByRole('button', { name: 'Hold', exact: true }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('Power cycle').click();
    await dialog.getByLabel('Reason').fill('stuck');
    const go = dialog.getByRole('button', { name: 'Power cycle', exact: true });
    assert.equal(await go.isDisabled(), true);
    await dialog.getByLabel(/to confirm/).fill('batch-2');
    assert.equal(await go.isDisabled(), true, 'another name is not enough');
    await dialog.getByLabel(/to confirm/).fill('batch-1');
    assert.equal(await go.isDisabled(), false);
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'detached' });
  });

  await check('the key of a BMC is shown, and approved by who has compared it', async () => {
    const spec = { powerInterface: 'redfish', mgmtAddress: lab.address(lab.spare), pool: 'keys', bmcCredentials: 'racks', tlsVerify: 'pin', resources: { cpu: '4', memory: '8Gi' }, deadlines: { enrolDeadline: '10h' } };
    await lab.post('/api/v1/hosts', { name: 'key-1', spec });
    const blocked = await until('its key is seen', async () => (await lab.get('/api/v1/hosts/key-1')).status?.bmcBlocked);
    assert.equal(blocked.cause, 'KeyNotApproved');
    await window.to('/hosts/key-1');
    await settled(page);
    const card = page.locator('section.card').filter({ has: page.getByRole('heading', { name: 'Its BMC is not talked to' }) });
    await card.getByText(blocked.seenKey).first().waitFor(DONE);
    await shot(page, 'host-key');
    await card.getByRole('button', { name: 'Approve key' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText(`The BMC shows ${blocked.seenKey}`).waitFor();
    await dialog.getByRole('button', { name: `muster approve host key-1 --pin ${blocked.seenKey}` }).waitFor();
    await dialog.getByLabel('Reason').fill('read from its sticker');
    await shot(page, 'host-key-dialog');
    await dialog.getByRole('button', { name: 'Approve key', exact: true }).click();
    await dialog.waitFor({ state: 'detached', ...DONE });
    assert.equal((await lab.get('/api/v1/hosts/key-1')).spec.pin, blocked.seenKey);
    await card.waitFor({ state: 'detached', ...DONE });
    await until('its power is read', async () => (await lab.get('/api/v1/hosts/key-1')).status?.powerState !== 'unknown');
    await lab.call('DELETE', '/api/v1/hosts/key-1?force=true');
  });

  await check('names and reasons with markup are text', async () => {
    for (const where of ['/hosts/web-4', '/racks', '/']) {
      await window.to(where);
      await settled(page);
      assert.ok(!(await page.title()).includes('owned'), where);
      assert.equal(await page.locator('main img[src="x"]').count(), 0);
    }
    await lab.call('PUT', '/api/v1/freeze', { mode: 'frozen', reason: MARKUP });
    await page.locator('.banner.frozen').getByText('<img').waitFor(DONE);
    assert.ok(!(await page.title()).includes('owned'));
    await shot(page, 'overview-frozen');
    await lab.call('PUT', '/api/v1/freeze', { mode: 'none', reason: 'tested' });
    await page.locator('.banner.frozen').waitFor({ state: 'detached', ...DONE });
  });

  await check('from the overview to what is wrong with a server, and what was said to its BMC', async () => {
    const wrong = async () => (await lab.get('/api/v1/overview')).attention.find((one) => one.subject === 'gpu-4');
    await until('a server that needs somebody', wrong);
    await window.to('/');
    // What is wrong may be said in other words a moment later.
    await until('its line leads to it', async () => page.getByRole('link', { name: (await wrong()).line }).click({ timeout: 5_000 }).then(() => true));
    await page.getByRole('heading', { name: 'gpu-4', exact: true }).waitFor();
    await page.getByRole('heading', { name: 'Failures in the last day' }).waitFor(DONE);
    await until('the last failure is shown', async () => (await page.locator('main').innerText()).includes((await lab.get('/api/v1/hosts/gpu-4')).status.failures.at(-1).message));
    await page.locator('.calls .bad').first().waitFor(DONE);
    assert.ok(!(await page.locator('main').innerText()).includes('emulated\n'), 'no password');
    await shot(page, 'bad-server', { fullPage: true });
  });

  await check('search finds by MAC and goes there; back and forward keep the state', async () => {
    await window.to('/pools?sort=name&q=e');
    await settled(page);
    await page.keyboard.press('/');
    await page.keyboard.type('02:00:00:00:03:01');
    await page.getByRole('option').first().getByText('batch-1').waitFor();
    await shot(page, 'search');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'batch-1' }).waitFor();
    await page.goBack();
    await page.waitForURL('**/pools?sort=name&q=e');
    assert.equal(await page.getByLabel('Filter by name').inputValue(), 'e');
    await page.goForward();
    await page.getByRole('heading', { name: 'batch-1' }).waitFor();
  });

  await check('OPS-U17 by keys alone: go to the racks, walk, choose, hold, and read why', async () => {
    await window.to('/');
    await settled(page);
    // Two keys belong together when they come soon after one another, which a busy machine may fail to do.
    await until('the racks', async () => {
      await page.keyboard.press('g');
      await page.keyboard.press('r');
      return new URL(page.url()).pathname === '/racks';
    });
    await settled(page);
    await page.locator('#tile-batch-2').focus();
    await page.keyboard.press('ArrowDown');
    await page.waitForFunction(() => document.activeElement?.id === 'tile-batch-1');
    await page.keyboard.press(' ');
    await page.getByText('1 host chosen').waitFor();
    await page.getByRole('button', { name: 'Act on them' }).focus();
    await page.keyboard.press('Enter');
    const dialog = page.getByRole('dialog');
    await dialog.waitFor();
    await dialog.getByLabel('Reason').focus();
    await page.keyboard.type('by keys');
    await dialog.getByRole('button', { name: 'Hold', exact: true }).focus();
    await page.keyboard.press('Enter');
    await dialog.waitFor({ state: 'detached', ...DONE });
    assert.equal((await lab.get('/api/v1/hosts/batch-1')).spec.hold.reason, 'by keys');
    await page.locator('#tile-batch-1').focus();
    await page.keyboard.press('Enter');
    await page.waitForURL('**/hosts/batch-1');
    await page.getByRole('heading', { name: 'Why' }).waitFor();
    await page.keyboard.press('?');
    await page.getByRole('dialog').getByText('These keys').waitFor();
    await page.keyboard.press('Escape');
  });

  await check('two tabs: what one does the other shows', async () => {
    const other = await window.context.newPage();
    await other.goto(`${base}/hosts/batch-2`, { waitUntil: 'domcontentloaded' });
    await settled(other);
    await lab.post('/api/v1/hosts/batch-2/hold', { reason: 'in another tab' });
    await other.getByText(/held by ann/).first().waitFor(DONE);
    await lab.post('/api/v1/hosts/batch-2/release', { reason: 'done' });
    await other.getByRole('button', { name: 'Hold', exact: true }).waitFor(DONE);
    await other.close();
  });

  await check('OPS-U10 what the page says is what the API says', async () => {
    for (const [where, api] of [
      [`/pools/${lab.pools.web}`, `/api/v1/explain/pool/${lab.pools.web}`],
      ['/hosts/web-2', '/api/v1/explain/host/web-2'],
      ['/hosts/gpu-4', '/api/v1/explain/host/gpu-4'],
    ]) {
      await window.to(where);
      await settled(page);
      // The planner looks again while we compare: both are read until they speak of one moment.
      await until(`the same words at ${where}`, async () => {
        const said = await lab.get(api);
        const [headline, rest] = await Promise.all([page.locator('.explain strong').first().innerText(), page.locator('.explain pre').first().innerText()]);
        const still = (text) => text.replace(/last look .*$/m, '').split('\n').map((line) => line.trimEnd()).join('\n').trim();
        return headline === said.headline && still(rest) === still(said.text.split('\n').slice(1).join('\n'));
      });
    }
  });

  await check('two decisions are chosen by keys and compared; page, API and command line say the same', async () => {
    await window.to('/decisions?all=1');
    await settled(page);
    // Two of the last ones, which are on the first page for as long as this takes, and whose outcomes are final.
    const [first, last] = await until('two decisions that differ', async () => {
      const { decisions } = await lab.get(`/api/v1/decisions?limit=40&cluster_id=${lab.cluster}`);
      const done = decisions.filter((one) => !['planned', 'acting', 'pending'].includes(one.outcome.state)).map((one) => one.id);
      for (const id of done.slice(1).reverse()) if ((await lab.get(`/api/v1/decisions/${id}/compare?with=${done[0]}`)).inputs.length > 0) return [id, done[0]];
      return undefined;
    });
    for (const id of [last, first]) {
      await page.getByRole('checkbox', { name: `Compare decision ${id}` }).focus();
      await page.keyboard.press(' ');
    }
    await page.waitForURL(`**/decisions?all=1&a=${last}&b=${first}`);
    await shot(page, 'decisions-chosen');
    await page.getByRole('status').getByRole('link', { name: 'Compare', exact: true }).focus();
    await page.keyboard.press('Enter');
    await page.waitForURL(`**/decisions/compare?a=${first}&b=${last}`);
    const said = await lab.get(`/api/v1/decisions/${first}/compare?with=${last}`);
    await page.getByText(said.summary, { exact: true }).waitFor(DONE);
    const line = JSON.parse((await run(muster, ['compare', 'decisions', first, last, '-o', 'json', '--server', base, '--as-email', ANN])).stdout);
    assert.deepEqual([line.summary, line.inputs, line.outcome], [said.summary, said.inputs, said.outcome]);
    assert.ok(said.inputs.length > 0, 'something differs');
    await until('every row of the comparison', async () => {
      const shown = await page.locator('main').innerText();
      return [...said.inputs, ...said.outcome].every((row) => shown.includes(row.name) && shown.includes(row.to));
    });
    await page.goBack();
    await page.getByRole('checkbox', { name: `Compare decision ${first}` }).waitFor();
    assert.equal(await page.getByRole('checkbox', { name: `Compare decision ${first}` }).isChecked(), true, 'the choice is in the URL');
    await window.to(`/decisions/compare?a=${first}&b=${first}`);
    await page.getByText(/nothing differs/i).waitFor(DONE);
    // What cannot be compared says which one, and why.
    await tolerating(window, /Failed to load resource/, async () => {
      for (const [b, words] of [['yesterday', /ids look like/], [`${first.split('-')[0]}-999999`, /there is no decision .*-999999/]]) {
        await page.getByLabel('To decision').fill(b);
        await page.keyboard.press('Enter');
        await page.getByRole('alert').getByText(words).first().waitFor(DONE);
      }
    });
  });

  await check('on a narrow screen decisions still say why, and nothing of a row is cut off', async () => {
    await page.setViewportSize({ width: 360, height: 780 });
    await window.to('/decisions?all=1');
    await settled(page);
    const why = page.locator('.say .under').first();
    assert.equal(await why.isVisible(), true, 'the cause is under the decision');
    const right = await page.locator('td.outcome').first().evaluate((cell) => cell.getBoundingClientRect().right - innerWidth);
    assert.ok(right <= 0, `the outcome is ${right} px outside`);
    await page.setViewportSize({ width: 1280, height: 860 });
  });

  await check('settings read as people say them: no JSON, no millionths, each with the name it is set by', async () => {
    await until('the price is in force', async () => (await lab.get('/api/v1/settings')).settings.some((one) => one.name === 'hosts.energyPriceMicros'));
    await window.to('/settings');
    await page.getByText('€0.28 per kWh').waitFor(DONE);
    for (const details of await page.locator('main details').all()) await details.evaluate((one) => (one.open = true));
    const values = await page.locator('td.value').allInnerTexts();
    assert.ok(values.length > 40, `${values.length} settings`);
    assert.deepEqual(values.filter((text) => /[{}"\[\]]|^\d{4,}$/.test(text)), []);
    await page.getByText('hosts.policy.quarantineAfter').waitFor();
    await page.getByText('3 failures in a day').waitFor();
    await shot(page, 'settings-all');
  });

  await check('addresses and questions that make no sense are answered in words', async () => {
    await tolerating(window, /Failed to load resource/, async () => { for (const [where, words] of [
      ['/hosts/%E0%A4%A', /not found/i], ['/hosts/nobody', /not found/i], ['/nowhere', /no such page/i], ['/pools/abc', /is not a UUID/],
      ['/what-if?ask=add&count=0', /found 0, allowed: 1 to/], ['/what-if?ask=add&cpu=lots', /cpu is "lots", which is not an amount/],
      ['/decisions?since=yesterday', /found "yesterday"; write it like/], [`/decisions/compare?a=${MARKUP}&b=x`, /ids look like/],
    ]) {
      await window.to(where);
      await page.locator('main').getByText(words).first().waitFor(DONE);
      assert.ok((await page.locator('main [role="alert"]').count()) <= 1, `${where}: said once`);
    } });
  });

  await check('what-if answers and changes nothing', async () => {
    const before = (await pool('gpu')).resource_version;
    await window.to('/what-if?ask=fail&what=rack&name=a1');
    await page.getByText('Answered in').waitFor(DONE);
    await shot(page, 'what-if-fail');
    assert.equal((await pool('gpu')).resource_version, before);
    await page.getByText('Nothing is changed here.').waitFor();
    // Money is told in the currency that is configured.
    assert.match(await page.getByRole('row').filter({ hasText: 'Price an hour' }).innerText(), /€\d/);
    await tolerating(window, /Failed to load resource/, async () => {
      await window.to('/what-if?ask=fail&what=rack&name=nowhere');
      await page.getByRole('alert').waitFor(DONE);
      assert.match(await page.getByRole('alert').innerText(), /nowhere/);
    });
  });

  await check('400 % zoom at 1280: nothing has to be scrolled sideways', async () => {
    await page.setViewportSize({ width: 320, height: 600 });
    for (const where of ['/', '/pools', '/racks', '/pending', '/decisions', `/decisions/compare?a=${lab.decisions[0]}&b=${lab.decisions.at(-1)}`, '/energy', '/what-if', '/settings']) {
      await window.to(where);
      await settled(page);
      await fits(page);
    }
    await page.setViewportSize({ width: 1280, height: 860 });
  });

  await check('signing in: nobody is asked who they are, and a wrong address is not believed', async () => {
    const nobody = await open(browser, base, {});
    nobody.seen.noise = /Failed to load resource/;
    await nobody.to('/pools');
    const dialog = nobody.page.getByRole('dialog');
    await dialog.getByText(/Every address is believed/).waitFor();
    await shot(nobody.page, 'sign-in');
    assert.deepEqual(await findings(nobody.page), [], 'axe');
    await dialog.getByLabel('Address').fill(ANN);
    await nobody.page.keyboard.press('Enter');
    await nobody.page.getByRole('link', { name: 'web', exact: true }).waitFor(DONE);
    await nobody.to('/?as=eve%40example.com');
    await nobody.page.getByText('eve@example.com').waitFor(DONE);
    assert.ok(!nobody.page.url().includes('as='), 'the address does not keep it');
    assert.deepEqual(nobody.seen.off, []);
    await nobody.context.close();
  });

  await check('zero console errors and zero requests off the origin in all of this', async () => {
    assert.deepEqual(window.seen.errors, []);
    assert.deepEqual(window.seen.off, []);
  });
  await window.context.close();
}
