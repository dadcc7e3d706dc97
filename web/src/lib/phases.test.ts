import { expect, test } from 'vitest';
import { bits, timed } from './phases.ts';
import type { Host, HostEvent } from './types.ts';

const at = (minute: number) => new Date(Date.UTC(2026, 10, 17, 8, minute)).toISOString();
const event = (minute: number, from: string, to: string, deadline?: number): HostEvent => ({ at: at(minute), source: 'lifecycle', by: 'muster', what: 'row', message: '', from, to, count: 1, ...(deadline === undefined ? {} : { deadline: at(deadline) }) });
const status = (over: Partial<NonNullable<Host['status']>>): Host['status'] => ({ state: 'powering-on', stateSince: at(0), phase: 'booting', phaseSince: at(0), reason: '', powerState: 'on', ...over });
const durations = { pool: 'web', hosts: 3, phases: [{ phase: 'booting', count: 4, median_millis: 150_000 }] };

test('a past phase keeps the deadline that it had, and the present one has that of now', () => {
  const story = [event(0, 'off/idle', 'powering-on/booting', 15), event(3, 'powering-on/booting', 'ready/serving'), event(20, 'ready/serving', 'powering-on/booting', 35)];
  const all = bits(story, status({ deadline: at(40) }), durations, Date.parse(at(22)));
  expect(all.map((one) => [one.phase, (one.to - one.from) / 60_000, one.deadline && (one.deadline - one.from) / 60_000, one.median])).toEqual([
    ['booting', 3, 15, 150_000],
    ['serving', 17, undefined, undefined],
    ['booting', 2, 20, 150_000],
  ]);
  expect(timed(all).map((one) => one.last), 'newest first, without what has no time to keep').toEqual([true, false]);
});

test('a phase that failed says with what', () => {
  const story = [event(0, 'off/idle', 'powering-on/booting', 15), event(15, 'powering-on/booting', 'draining/stopping', 20), { ...event(15, 'powering-on/booting', 'draining/stopping'), what: 'remark' }, event(15, 'draining/stopping', 'draining/forcing-off', 17), event(16, 'draining/forcing-off', 'error/backoff')];
  const all = bits(story, status({ failures: [{ at: at(15), reason: 'NeverJoined', message: 'no node joined' }] }), undefined, Date.parse(at(18)));
  expect(all[0]?.failed).toBe('no node joined');
  expect(all.slice(1).map((one) => [one.phase, one.failed]), 'a failure is told once, and a remark is no phase').toEqual([['stopping', undefined], ['forcing-off', undefined], ['backoff', undefined]]);
});

test('what took no time is no phase to look at', () => {
  const story = [event(0, 'a/power-requested', 'a/powered', 15), event(0, 'a/powered', 'a/booting', 15), event(2, 'a/booting', 'a/joining', 7)];
  expect(timed(bits(story, undefined, undefined, Date.parse(at(3)))).map((one) => one.phase)).toEqual(['joining', 'booting']);
});
