import { expect, test } from 'vitest';
import { bytes, clock, duration, energy, moment, money, plural, quantity, readable, shape, share, short, sign, watts } from './format.ts';

const same = (found: unknown, wanted: unknown) => expect(found).toBe(wanted);

test('lengths of time', () => {
  for (const [seconds, text] of [[0, '0 s'], [59.9, '59 s'], [60, '1 min'], [3599, '59 min'], [3600, '1 h'], [5400, '1 h 30 min'], [40_000, '11 h'], [200_000, '2 d'], [-5, '0 s']] as const)
    same(duration(seconds), text);
  same(clock(130), '2:10');
  same(clock(3661), '1:01:01');
});

test('amounts keep three digits', () => {
  same(bytes(0), '0 B');
  same(bytes(12 * 1024 ** 3), '12 GiB');
  same(bytes(10.9 * 1024 ** 3), '10.9 GiB');
  same(watts(180_000), '180 W');
  same(watts(12_340_000), '12.3 kW');
  same(energy(1080), '1.08 kWh');
  same(short(0.5), '0.5');
  same(plural(1, 'host'), '1 host');
  same(plural(2, 'host'), '2 hosts');
});

test('times in sentences are told as everywhere else', () => {
  const now = Date.parse('2026-11-17T09:00:00Z');
  const told = (time: string) => moment(time, now);
  same(readable('rests until 2026-11-17T08:26:32.988Z, then 2026-11-17T08:30:00Z', now), `rests until ${told('2026-11-17T08:26:32.988Z')}, then ${told('2026-11-17T08:30:00Z')}`);
  same(readable('next look in 1m1.934s, then 0.4s; of 15m and v1.2', now), 'next look in 1m2s, then 0.4s; of 15m and v1.2');
});

test('moments of other days say which', () => {
  const now = Date.parse('2026-11-16T12:00:00');
  same(moment('2026-11-16T09:05:07', now), '09:05:07');
  same(moment('2026-11-15T22:36:24', now), '15 Nov 22:36:24');
  same(moment('2025-11-15T22:36:24', now), '15 Nov 2025 22:36:24');
});

test('quantities and differences as people say them', () => {
  for (const [text, said] of [['64000m', '64'], ['250m', '0.25'], ['524288Mi', '512 GiB'], ['128Gi', '128 GiB'], ['32', '32'], ['many', 'many']] as const) same(quantity(text), said);
  same(sign(180_000, watts), '+180 W');
  same(sign(-2, String), '−2');
  same(sign(0, String), '±0');
});

test('shares of what is needed, where both are numbers of one unit', () => {
  expect(share('10.9 GiB', '12 GiB')).toBeCloseTo(0.908, 3);
  same(share('1', '2'), 0.5);
  for (const [has, needs] of [['a=b', 'a=c'], ['2 nodes', '3 hosts'], ['5', '0'], ['', '4']] as const) same(share(has, needs), undefined);
});

test('money names its currency, or says that none is set', () => {
  same(money(1_500_000, 'EUR'), '€1.50');
  same(money(1_500_000, '€'), '€1.50');
  same(money(13_190_000_000, 'USD'), '$13,190.00');
  same(money(62_000, 'CHF'), 'CHF\u00a00.062');
  same(money(62_400, '£'), '£0.062');
  same(money(2_000_000, 'credits'), '2.00 credits');
  same(money(0, 'EUR'), '€0.00');
  same(money(280, 'EUR'), '€0.00');
  for (const none of ['', ' ', null, undefined]) same(money(62_000, none), '0.062 (currency not set)');
});

test('what a machine has is told as people say it', () => {
  same(shape({ cpu: '64000m', memory: '512Gi', gpu: 8 }), '64 cores, 512 GiB, 8 GPUs');
  same(shape({ cpu: '1', memory: '1024Mi', gpu: 0 }), '1 core, 1 GiB');
  same(shape({}), '');
});
