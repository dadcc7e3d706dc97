import { expect, test } from 'vitest';
import { sharesOf, wear } from './energy.ts';
import type { Host } from './types.ts';

const host = (name: string, idleWatts: number | undefined, metrics: Host['metrics']): Host => ({ name, spec: { pool: 'web', powerInterface: 'redfish', resources: {}, idleWatts }, metrics });

test('hosts are told as pools are, those that draw most first', () => {
  const rows = sharesOf([
    host('off', 180, { milliwatts: { value: 0, at: '' }, usedMilliwattHours: 5, savedMilliwattHours: 900 }),
    host('busy', 110, { milliwatts: { value: 250_000, at: '' }, usedMilliwattHours: 700 }),
    host('silent', undefined, { milliwatts: { why: 'no reading', since: '' } }),
  ], 300_000);
  expect(rows.map((one) => one.name)).toEqual(['busy', 'off', 'silent']);
  expect(rows[0]).toMatchObject({ milliwatts: 250_000, all_on_milliwatts: 250_000, used_milliwatt_hours: 700, saved_milliwatt_hours: 0, used_micros: 210, saved_micros: 0, unmetered: 0 });
  expect(rows[1]).toMatchObject({ milliwatts: 0, all_on_milliwatts: 180_000, saved_milliwatt_hours: 900, used_micros: 1, saved_micros: 270 });
  expect(sharesOf([host('off', 180, undefined)], undefined)[0], 'without a price nothing is told in money').toMatchObject({ used_micros: null, saved_micros: null });
  expect(rows[2], 'what nobody knows is said to be unknown').toMatchObject({ unmetered: 1, undeclared: 1 });
});

test('a machine is worn by what its own pool allows', () => {
  const one = (count: number, budget: number) => ({ host: `h${count}`, pool: 'p', count, budget });
  const seen = wear({ cycles: [one(20, 24), one(4, 3), one(4, 24), one(0, 3)], cycle_budget: 24 });
  expect([seen.least, seen.greatest]).toEqual([3, 24]);
  expect(seen.bins[4]).toMatchObject({ machines: 2, over: 1 });
  expect(seen.bins.at(-1)).toMatchObject({ starts: 12, machines: 1, over: 0, beyond: true });
  expect(wear({ cycles: [], cycle_budget: 24 })).toMatchObject({ least: 24, greatest: 24, most: 1 });
});
