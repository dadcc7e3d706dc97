// A real Chromium, and pages that remember every console error and every request that left its origin.

import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const here = path.dirname(fileURLToPath(import.meta.url));
const require = createRequire(import.meta.url);
export const shots = process.env.SHOTS ?? path.resolve(here, '../../target/page-shots');
mkdirSync(shots, { recursive: true });
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

/** The machine may be slow and busy with other things: what is waited for may take this long, and only a failure does. */
export const PATIENCE = 180_000;

const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.woff2': 'font/woff2' };
const ARGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage', '--force-color-profile=srgb'];

export async function launch() {
  const profile = mkdtempSync(path.join(os.tmpdir(), 'muster-ui-'));
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', headless: true, args: ARGS, timeout: PATIENCE });
  return { browser, close: async () => { await browser.close(); rmSync(profile, { recursive: true, force: true }); } };
}

/** A window of somebody. `noise` is what the test itself causes, for instance by cutting the network. */
export async function open(browser, base, { as, width = 1280, height = 860, scheme = 'light', motion = 'reduce', init, more = {} } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, reducedMotion: motion, deviceScaleFactor: 1, locale: 'en-GB', timezoneId: 'UTC', ...more });
  context.setDefaultTimeout(PATIENCE);
  const seen = { errors: [], off: [], noise: /^$/ };
  if (as) await context.addInitScript((user) => { if (location.protocol.startsWith('http') && !sessionStorage.getItem('muster.user')) sessionStorage.setItem('muster.user', user); }, as);
  // While working on the page: `PAGE_FROM=dist` shows what vite built last, without building the program again.
  if (process.env.PAGE_FROM) await context.route((url) => !/^\/(api|docs|metrics|openapi|livez|readyz|health)/.test(url.pathname), (route) => {
    const name = new URL(route.request().url()).pathname.slice(1);
    const file = path.resolve(here, '..', process.env.PAGE_FROM, /\.\w+$/.test(name) ? name : 'index.html');
    return route.fulfill({ path: file, headers: { 'Content-Type': TYPES[path.extname(file)] ?? 'application/octet-stream', 'Content-Security-Policy': "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; connect-src 'self'" } });
  });
  if (init) await init(context);
  const watch = (page) => {
    page.on('pageerror', (error) => seen.errors.push(`${page.url()}: ${error.message}`));
    page.on('console', (message) => {
      if (message.type() === 'error' && !seen.noise.test(message.text())) seen.errors.push(`${page.url()}: ${message.text()}`);
    });
    page.on('request', (request) => {
      if (!request.url().startsWith(base) && !/^(data|blob|about):/.test(request.url())) seen.off.push(request.url());
    });
    return page;
  };
  context.on('page', watch);
  const page = await context.newPage();
  return { context, page, seen, to: (where) => page.goto(base + where, { waitUntil: 'domcontentloaded' }) };
}

/** The page shows data or says why not: nothing is being loaded any more. */
export const settled = (page) => page.waitForFunction(() => document.querySelector('main') && !document.querySelector('main [aria-busy="true"], main .skeleton'));

export const shot = (page, name, { fullPage = false } = {}) => page.screenshot({ path: path.join(shots, `${name}.png`), fullPage, animations: 'disabled' });

/** Waits until nothing is wider than the window: charts follow it a frame later. */
export const fits = (page) => page.waitForFunction(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth, undefined, { timeout: 20_000 })
  .catch(async () => { throw new Error(`${await page.evaluate(() => `${location.pathname} is ${document.documentElement.scrollWidth - document.documentElement.clientWidth} px too wide at ${innerWidth}`)}`); });

/** What a window complains about while `body` runs is what the test causes: it has left the page when that is over. */
export async function tolerating(window, noise, body) {
  window.seen.noise = noise;
  try {
    await body();
  } finally {
    await window.page.goto('about:blank');
    window.seen.noise = /^$/;
  }
}

/** Findings of axe-core that are serious or worse. A page that hears nothing for a moment is dimmed, and looked at again. */
export async function findings(page) {
  for (;;) {
    await page.waitForFunction(() => !document.querySelector('.banner.stale') || document.querySelector('[role="dialog"], dialog[open]'));
    const found = await violations(page);
    if (!found.length || !(await page.evaluate(() => document.querySelector('.banner.stale') && !document.querySelector('dialog[open]')))) return found;
  }
}

async function violations(page) {
  await page.evaluate(axe);
  const result = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }));
  return result.violations.filter((one) => one.impact === 'serious' || one.impact === 'critical').map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.target.join(' ')).join(' | ')}${one.id === 'color-contrast' ? ` ${one.nodes[0].any[0]?.message}` : ''}`);
}
