import { expect, test } from 'vitest';
import { apart, choose, compareLink } from './chosen.ts';

test('choosing two, a third, and taking one back', () => {
  for (const [before, id, after] of [
    [{}, 'aa-1', { a: 'aa-1' }], [{ a: 'aa-1' }, 'aa-2', { a: 'aa-1', b: 'aa-2' }], [{ a: 'aa-1', b: 'aa-2' }, 'aa-3', { a: 'aa-1', b: 'aa-3' }],
    [{ a: 'aa-1', b: 'aa-2' }, 'aa-1', { a: 'aa-2' }], [{ a: 'aa-1', b: 'aa-2' }, 'aa-2', { a: 'aa-1' }], [{ a: 'aa-1' }, 'aa-1', { a: undefined }],
  ] as const)
    expect(choose(before, id)).toEqual(after);
});

test('the older one comes first', () => {
  expect(compareLink({ a: 'aa-10', b: 'aa-9' })).toBe('/decisions/compare?a=aa-9&b=aa-10');
  expect(compareLink({ a: 'aa-10' })).toBeUndefined();
  expect(apart({ a: 'aa-1', b: 'bb-2' })).toContain('two clusters');
  expect(apart({ a: 'aa-1', b: 'aa-2' })).toBeUndefined();
});
