// Parts of pages that one looks at more closely: energy by rack and by host, phases against their deadlines, the card of a
// host, the age of readings, a change of pods as a question; and a page that is about one cluster of several.

import { findings, fits, open, settled, shot } from './browser.mjs';
import { ANN, until } from './lab.mjs';

const DONE = { timeout: 180_000 };
const watts = (milliwatts) => `${Math.round(milliwatts / 1000).toLocaleString('en')} W`;

/** In the demo, as fast as life. */
export async function views({ check, assert, window, fleet }) {
  const { page } = window;

  await check('energy by pool, rack and host adds up to the same, and the choice is in the address', async () => {
    await window.to('/energy');
    await settled(page);
    const group = page.getByRole('group', { name: 'Told by' });
    const rows = page.locator('table', { hasText: 'Saved kWh' }).locator('tbody tr');
    for (const [by, word] of [['pool', 'Pool'], ['rack', 'Rack'], ['host', 'Host']]) {
      await group.getByRole('button', { name: word }).click();
      assert.equal(new URL(page.url()).searchParams.get('by'), by === 'pool' ? null : by);
      await until(`energy by ${by} as the API has it`, async () => {
        const report = await fleet.get('/api/v1/energy');
        const all = by === 'pool' ? report.pools : by === 'rack' ? report.racks : (await fleet.get('/api/v1/hosts?limit=100')).hosts.map((one) => ({ name: one.name, milliwatts: one.metrics.milliwatts.value, used_milliwatt_hours: one.metrics.usedMilliwattHours }));
        for (const sum of ['milliwatts', 'used_milliwatt_hours']) if (all.reduce((so, one) => so + one[sum], 0) !== report[sum]) return false;
        if ((await rows.count()) !== all.length) return false;
        const texts = (await rows.allInnerTexts()).map((text) => text.split(/\s*\t\s*/));
        return all.every((one) => texts.some((cells) => cells[0].trim() === one.name && cells[1].trim() === watts(one.milliwatts)));
      });
    }
    assert.deepEqual(await findings(page), [], 'axe');
    await page.reload();
    await settled(page);
    assert.equal(await group.getByRole('button', { name: 'Host' }).getAttribute('aria-pressed'), 'true');
    await shot(page, 'demo-energy-host');
  });

  await check('past phases stand beside the time that they had and the median of their pool', async () => {
    const host = (await fleet.get('/api/v1/hosts?limit=100')).hosts.find((one) => one.status.state === 'ready' && one.status.starts?.length);
    assert.ok(host, 'a host that came up');
    await window.to(`/hosts/${host.name}`);
    await settled(page);
    const durations = await fleet.get(`/api/v1/hosts/${host.name}/durations`);
    const booted = durations.phases.find((one) => one.phase === 'booting');
    const row = page.locator('.took tbody tr').filter({ has: page.getByRole('cell', { name: /^booting/ }) }).last();
    await row.waitFor(DONE);
    // A boot that ends meanwhile may move the median by seconds.
    const minutes = Math.floor(booted.median_millis / 60_000);
    await until('the median of the pool', async () => new RegExp(`\\b${minutes}:\\d\\d$`).test((await row.innerText()).trim()));
    const [took, of] = (await row.innerText()).match(/\b\d+:\d\d\b/g).slice(-3).map((text) => text.split(':').reduce((so, part) => so * 60 + Number(part), 0));
    assert.ok(took > 0 && took < of, `${host.name}: ${took} of ${of}`);
    assert.equal(await row.evaluate((one) => one.classList.contains('late')), false);
    assert.ok((await page.locator('.lane .ghost.past').count()) >= 1, 'deadlines as ghost bars');
    await shot(page, 'demo-phases');
  });

  await check('a card says what is to be known of a host, under the pointer and under the keys', async () => {
    await window.to('/racks');
    await settled(page);
    const host = (await fleet.get('/api/v1/hosts?limit=100')).hosts.find((one) => one.status.state === 'ready' && one.status.kubernetesNode && !one.spec.hold);
    const card = page.getByRole('tooltip');
    const tile = page.locator(`#tile-${host.name}`);
    const told = async (how) => {
      await card.waitFor();
      const text = await card.innerText();
      for (const part of [host.name, host.spec.pool, 'Draws', ' W', 'CPU', ' %', 'ready for', 'ago']) assert.ok(text.includes(part), `${how}: ${part} in ${text}`);
    };
    await tile.hover();
    await told('pointer');
    assert.equal(await tile.getAttribute('aria-describedby'), await card.getAttribute('id'));
    assert.deepEqual(await findings(page), [], 'axe');
    await shot(page, 'demo-card');
    const box = await card.boundingBox();
    const size = page.viewportSize();
    assert.ok(box.x >= 0 && box.y >= 0 && box.x + box.width <= size.width && box.y + box.height <= size.height, 'inside the window');
    // The pointer may go onto the card.
    await card.hover();
    await page.waitForTimeout(400);
    assert.equal(await card.count(), 1);
    await page.mouse.move(2, 2);
    await card.waitFor({ state: 'detached' });
    assert.equal(await tile.getAttribute('aria-describedby'), null);
    // By keys: the first tile, then the next; Escape puts it away and the focus stays.
    await page.locator('[id^="tile-"][tabindex="0"]').focus();
    await page.keyboard.press('ArrowDown');
    const name = await page.evaluate(() => document.activeElement.dataset.host);
    await card.getByText(name, { exact: true }).waitFor();
    await page.keyboard.press('Escape');
    await card.waitFor({ state: 'detached' });
    assert.equal(await page.evaluate(() => document.activeElement.dataset.host), name);
  });

  await check('racks show how old each reading is', async () => {
    await window.to('/racks');
    await settled(page);
    await page.getByLabel('Colour by').selectOption('age');
    assert.equal(new URL(page.url()).searchParams.get('overlay'), 'age');
    const hosts = (await fleet.get('/api/v1/hosts?limit=100')).hosts;
    await until('the age of every reading', async () => {
      const texts = await page.locator('.tile .say').allInnerTexts();
      return texts.length === hosts.length && texts.every((text) => /^\d+ (s|min|h)( \d+ min)? old/.test(text));
    });
  });

  await check('a change of pods is asked as pods of that shape, and answered', async () => {
    await window.to('/pending');
    await settled(page);
    const card = page.locator('li.card').filter({ hasText: 'warehouse-export' });
    await card.getByRole('button', { name: 'Try in what-if' }).first().click();
    await page.getByText('Answered in').waitFor(DONE);
    assert.equal(await page.getByLabel('Memory').inputValue(), '512Gi');
    assert.equal(await page.getByLabel('Taints').inputValue(), 'nvidia.com/gpu');
    assert.match(await page.locator('main').innerText(), /--add 1 --cpu 64 --memory 512Gi --tolerate nvidia\.com\/gpu/);
    assert.match(await page.locator('.summary').innerText(), /find(s)? a place/);
  });
}

/** In the lab: a host that never comes up. */
export async function late(world) {
  const { lab, browser, check, assert } = world;
  await check('a phase that ran out of its time stands out, beside what was asked of the BMC', async () => {
    await until('web-2 has failed', async () => (await lab.get('/api/v1/hosts/web-2')).status.failures?.length);
    const window = await open(browser, lab.base, { as: ANN });
    const { page } = window;
    await window.to('/hosts/web-2');
    await settled(page);
    const row = page.locator('.took tr.late').filter({ hasText: 'power-requested' }).first();
    await row.waitFor(DONE);
    const [took, of] = (await row.innerText()).match(/\b\d+:\d\d\b/g).slice(-2 - Number(!/–/.test(await row.innerText()))).map((text) => text.split(':').reduce((so, part) => so * 60 + Number(part), 0));
    assert.ok(of > 0 && took >= of - 1, `${took} of ${of}`);
    assert.ok((await page.locator('.lane .call').count()) >= 1, 'what was asked of its BMC');
    assert.deepEqual(window.seen.errors, []);
    await shot(page, 'host-late', { fullPage: true });
    await window.context.close();
  });
}

/** In the lab, where a second cluster is registered for it. */
export async function clusters(world) {
  const { lab, browser, check, assert } = world;
  const window = await open(browser, lab.base, { as: ANN });
  const { page } = window;
  const choice = page.getByLabel('Cluster', { exact: true });
  const names = async () => (await lab.get('/api/v1/clusters?limit=100')).clusters.map((one) => one.name);

  await check('one cluster of several: chosen once, kept from page to page, in the address; none to choose where there is one', async () => {
    if ((await names()).length === 1) {
      await window.to('/pools');
      await settled(page);
      assert.equal(await choice.count(), 0, 'nothing to choose');
    }
    const other = (await lab.post('/api/v1/clusters', { name: 'elsewhere', spec: { platform: { type: 'gcp' } } })).id;
    await lab.post(`/api/v1/clusters/${other}/nodepools`, { name: 'far', spec: { platform: { type: 'gcp', gcp: { machineType: 'n1-standard-4' } }, nodeCount: 1 } });
    await window.to('/pools');
    await settled(page);
    await choice.waitFor(DONE);
    await page.getByRole('columnheader', { name: 'Cluster' }).waitFor();
    await page.getByRole('link', { name: 'far', exact: true }).waitFor(DONE);
    await page.getByRole('link', { name: 'web', exact: true }).waitFor();
    await shot(page, 'pools-clusters');
    await choice.selectOption({ label: 'elsewhere' });
    await page.getByRole('link', { name: 'web', exact: true }).waitFor({ state: 'detached' });
    await page.getByRole('link', { name: 'far', exact: true }).waitFor();
    assert.equal(new URL(page.url()).searchParams.get('cluster'), other);
    assert.equal(await page.getByRole('columnheader', { name: 'Cluster' }).count(), 0, 'all are of one');

    await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Overview', exact: true }).click();
    await page.locator('.lead', { hasText: 'No machine of ours serves this cluster' }).waitFor(DONE);
    assert.equal(new URL(page.url()).searchParams.get('cluster'), other);
    assert.ok(!(await page.locator('main').innerText()).includes('web-2'), 'what is wrong with machines of another cluster');
    await shot(page, 'overview-clusters');
    assert.deepEqual(await findings(page), [], 'axe');

    await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: /^Pending/ }).click();
    await page.getByText('nobody sees the pods of elsewhere').waitFor(DONE);
    await page.setViewportSize({ width: 360, height: 812 });
    await fits(page);
    await shot(page, 'pending-clusters-360');
    await page.setViewportSize({ width: 1280, height: 860 });

    // A page about all machines is about all of them, and back is back.
    await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: /^Racks/ }).click();
    await page.locator('#tile-web-1').waitFor(DONE);
    assert.equal(await choice.count(), 0);
    await page.goBack();
    await page.getByText('nobody sees the pods of elsewhere').waitFor(DONE);
    assert.equal(await choice.inputValue(), other);
    await choice.selectOption('');
    assert.equal(new URL(page.url()).searchParams.get('cluster'), null);
    assert.deepEqual(window.seen.errors, []);
    assert.deepEqual(window.seen.off, []);
  });
  await window.context.close();
}
