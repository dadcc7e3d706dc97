import { expect, test } from 'vitest';
import { scoped } from './scope.ts';

test('links keep the cluster where their page knows of clusters', () => {
  expect(scoped('/pending', 'c1')).toBe('/pending?cluster=c1');
  expect(scoped('/pools?sort=name', 'c1')).toBe('/pools?sort=name&cluster=c1');
  expect(scoped('/pending?cluster=c2', 'c1')).toBe('/pending?cluster=c1');
  expect(scoped('/racks', 'c1')).toBe('/racks');
  expect(scoped('/pools/abc', 'c1')).toBe('/pools/abc');
  expect(scoped('/', '')).toBe('/');
});
