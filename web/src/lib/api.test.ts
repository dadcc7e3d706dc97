import { expect, test } from 'vitest';
import { line } from './api.ts';

test('what is wrong with a field is said whole', () => {
  for (const [detail, text] of [
    [{ path: 'add.count', problem: 'is out of range', found: 0, allowed: '1 to 10000' }, 'add.count: is out of range, found 0, allowed: 1 to 10000'],
    [{ path: 'since', problem: 'is not a time', found: 'yesterday', hint: 'write it like 2026-11-16T02:00:00Z' }, 'since: is not a time, found yesterday; write it like 2026-11-16T02:00:00Z'],
    [{ path: '', problem: 'is missing' }, 'is missing'],
    ['plain words', 'plain words'],
  ] as const)
    expect(line(detail)).toBe(text);
});
