import { describe, expect, it } from 'vitest';
import { ServerTime } from './time.ts';

describe('the time where the server lives', () => {
  it('is ours as long as the server says nothing', () => {
    const time = new ServerTime();
    time.note(null, 5_000);
    time.note('soon', 5_000);
    expect([time.strange, time.rate, time.now(6_000)]).toEqual([false, 1, 6_000]);
  });

  it('runs as fast as the answers say', () => {
    const time = new ServerTime();
    const start = Date.parse('2026-01-05T08:00:00Z');
    for (let second = 0; second <= 4; second += 1) time.note(new Date(start + second * 60_000).toISOString(), second * 1_000);
    expect(time.rate).toBe(60);
    expect(time.now(5_000)).toBe(start + 300_000);
  });

  it('forgets a server that was started anew', () => {
    const time = new ServerTime();
    time.note('2026-01-05T20:00:00Z', 0);
    time.note('2026-01-05T08:00:00Z', 2_000);
    expect(time.now(2_000)).toBe(Date.parse('2026-01-05T08:00:00Z'));
    expect(time.rate).toBe(1);
  });
});
