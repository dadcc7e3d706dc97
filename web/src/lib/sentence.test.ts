import { expect, test } from 'vitest';
import { fleet, latest } from './sentence.ts';
import type { Overview, Series } from './types.ts';

const overview = (hosts: Partial<Overview['hosts']>, pending: Partial<Overview['pending']> = {}) => ({ hosts: { total: 40, on: 22, held: 0, by_state: {}, ...hosts }, pending: { pods: 0, hopeless: 0, unseen_clusters: 0, ...pending } }) as Overview;
const series: Series[] = [
  { name: 'on_cpu', points: [[1, 500_000], [2, 572_000]] },
  { name: 'demand_cpu', points: [[1, 455_250], [2, null]] },
];

test('the last that is known counts, not the gap after it', () => {
  expect(latest(series, 'demand_cpu')).toBe(455_250);
  expect(latest(series, 'watts')).toBeUndefined();
  expect(latest(undefined, 'watts')).toBeUndefined();
});

test('what the fleet does is one sentence', () => {
  expect(fleet(overview({}), series)).toEqual({ state: '22 of 40 machines are on: 572 cores for the 455 that pods ask for.', trouble: [] });
  expect(fleet(overview({ on: 1, total: 1 }), undefined).state).toBe('1 of 1 machine is on.');
  expect(fleet(overview({ total: 0, on: 0 })).state).toBe('No machine is registered yet.');
  expect(fleet(overview({ total: 0, on: 0 }), undefined, true).state).toBe('No machine of ours serves this cluster.');
  expect(fleet(overview({ total: 0, on: 0 }), series, true).state, 'of a cluster in a cloud').toBe('No machine of ours serves this cluster: 572 cores for the 455 that pods ask for.');
});

test('and what is wrong follows, in the right number', () => {
  expect(fleet(overview({ by_state: { error: 1 } }, { pods: 1, hopeless: 1 })).trouble).toEqual(['1 machine is out of service', '1 pod waits that no plan helps']);
  expect(fleet(overview({ by_state: { error: 2 } }, { pods: 5, hopeless: 2 }))).toMatchObject({ trouble: ['2 machines are out of service', '2 pods wait that no plan helps'], coming: '3 pods wait for a machine that is on its way.' });
  expect(fleet(overview({}, { pods: 1 })).coming).toBe('1 pod waits for a machine that is on its way.');
  expect(fleet(overview({}, { pods: null })).trouble).toEqual(['whether pods wait is not known']);
});
