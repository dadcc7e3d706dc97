import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';

// Every command that the page offers to copy exists: its first words are a heading of the reference of the command line.
test('commands that can be copied are commands', () => {
  const root = path.resolve(import.meta.dirname, '../..');
  const reference = readFileSync(path.join(root, '../docs/reference/cli.md'), 'utf8');
  const known = new Set([...reference.matchAll(/^## (muster[a-z -]*)$/gm)].map((found) => found[1]?.trim()));
  const files = ['src', 'src/pages', 'src/ui'].flatMap((folder) => readdirSync(path.join(root, folder)).filter((name) => name.endsWith('.svelte')).map((name) => path.join(root, folder, name)));
  const offered = files.flatMap((file) => [...readFileSync(file, 'utf8').matchAll(/(?:text="|text=\{`|<code>|`)(muster [a-z-]+(?: [a-z-]+)?)/g)].map((found) => found[1] ?? ''));
  expect(offered.length).toBeGreaterThan(8);
  for (const command of offered) {
    const words = command.split(' ');
    expect(known.has(command) || known.has(words.slice(0, 2).join(' ')), command).toBe(true);
  }
});
