import assert from 'node:assert/strict';
import test from 'node:test';
import { bytes, clock, duration, energy, money, plural, short, watts } from './format.ts';

test('lengths of time', () => {
  for (const [seconds, text] of [[0, '0 s'], [59.9, '59 s'], [60, '1 min'], [3599, '59 min'], [3600, '1 h'], [5400, '1 h 30 min'], [40_000, '11 h'], [200_000, '2 d'], [-5, '0 s']] as const)
    assert.equal(duration(seconds), text);
  assert.equal(clock(130), '2:10');
  assert.equal(clock(3661), '1:01:01');
});

test('amounts keep three digits', () => {
  assert.equal(bytes(0), '0 B');
  assert.equal(bytes(12 * 1024 ** 3), '12 GiB');
  assert.equal(bytes(10.9 * 1024 ** 3), '10.9 GiB');
  assert.equal(watts(180_000), '180 W');
  assert.equal(watts(12_340_000), '12.3 kW');
  assert.equal(energy(1080), '1.08 kWh');
  assert.equal(money(1_500_000), '€1.50');
  assert.equal(short(0.5), '0.5');
  assert.equal(plural(1, 'host'), '1 host');
  assert.equal(plural(2, 'host'), '2 hosts');
});
