import { expect, test } from 'vitest';
import { judge } from './sequence.ts';

const change = (sequence: number, after: number) => ({ sequence, after, kind: 'hosts', part: 'status', name: 'a', deleted: false });

test('in order, each is told once', () => {
  expect(judge(10, 'change', change(11, 10)).tell).toMatchObject({ sequence: 11 });
  expect(judge(11, 'change', change(15, 11)).tell).toMatchObject({ sequence: 15 }); // others are not ours to hear
});

test('said twice or late: nothing is told and nothing is lost', () => {
  expect(judge(11, 'change', change(11, 10))).toEqual({ sequence: 11 });
  expect(judge(11, 'change', change(9, 8))).toEqual({ sequence: 11 });
});

test('one that was lost makes everything be read again', () => {
  expect(judge(10, 'change', change(12, 11))).toEqual({ sequence: 12, tell: 'resync' });
  expect(judge(10, 'beat', { sequence: 12 })).toEqual({ sequence: 12, tell: 'resync' });
});

test('reordered: the first one is a gap, the second is late', () => {
  const first = judge(10, 'change', change(12, 11));
  expect(first.tell).toBe('resync');
  expect(judge(first.sequence, 'change', change(11, 10))).toEqual({ sequence: 12 });
});

test('the server may say so itself, and a heartbeat alone is no news', () => {
  expect(judge(99, 'resync', { sequence: 7 })).toEqual({ sequence: 7, tell: 'resync' });
  expect(judge(10, 'beat', { sequence: 10 })).toEqual({ sequence: 10 });
  expect(judge(0, 'beat', { sequence: 5 })).toEqual({ sequence: 5 });
  expect(judge(10, 'something-else', {})).toEqual({ sequence: 10 });
});
