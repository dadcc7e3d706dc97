import { expect, test } from 'vitest';
import { queue } from './queue.ts';

test('one after the other, and a failure stops nobody', async () => {
  const seen: string[] = [];
  const work = (name: string, fails = false) => queue(async () => {
    seen.push(`${name} begins`);
    await Promise.resolve();
    seen.push(`${name} ends`);
    if (fails) throw new Error(name);
    return name;
  });
  const [a, b, c] = [work('a'), work('b', true), work('c')];
  expect(await a).toBe('a');
  await expect(b).rejects.toThrow('b');
  expect(await c).toBe('c');
  expect(seen).toEqual(['a begins', 'a ends', 'b begins', 'b ends', 'c begins', 'c ends']);
});
