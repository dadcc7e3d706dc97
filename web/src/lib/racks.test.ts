import { expect, test } from 'vitest';
import { columns, Faces } from './racks.ts';
import type { Host } from './types.ts';

const host = (name: string, rack: string | undefined, slot?: number, more: Partial<Host['status']> = {}, version = '1'): Host => ({ name, resource_version: version, spec: { pool: 'web', rack, slot, powerInterface: 'redfish', resources: {} }, status: { state: 'off', stateSince: '', phase: 'idle', phaseSince: '', reason: '', powerState: 'off', ...more }, metrics: { milliwatts: { value: 1000, at: '' } } });

test('racks in the order of their numbers, hosts from the top down', () => {
  const found = columns([host('b', 'r10', 1), host('a', 'r2', 1), host('c', 'r2', 4), host('d', undefined)], [{ name: 'r2', spec: { units: 42, wattCap: 7 } }]);
  expect(found.map((one) => [one.name, one.slots.map((slot) => slot.host.name).join(), one.drawn])).toEqual([['no rack', 'd', 1000], ['r2', 'c,a', 2000], ['r10', 'b', 1000]]);
  expect([found[1]?.units, found[1]?.cap]).toEqual([42, 7]);
  expect(found[1]?.slots.map((slot) => slot.free)).toEqual([2, 0]);
});

test('a host that looks as before stays the same object; one that changed, or was edited, does not', () => {
  const faces = new Faces();
  const first = faces.keep([host('a', 'r'), host('b', 'r'), host('c', 'r')]);
  const next = faces.keep([host('a', 'r'), host('b', 'r', undefined, { state: 'ready' }), host('c', 'r', undefined, {}, '2')]);
  expect([next[0] === first[0], next[1] === first[1], next[2] === first[2]]).toEqual([true, false, false]);
  expect(next[1]?.status?.state).toBe('ready');
  expect(faces.keep([])).toEqual([]);
});
