import { expect, test } from 'vitest';
import { condition, host, RANK } from './language.ts';
import type { Host } from './types.ts';

const NOW = Date.parse('2026-11-16T12:00:00Z');
const one = (status: Partial<NonNullable<Host['status']>>, spec: Partial<Host['spec']> = {}): Host => ({
  name: 'a',
  spec: { pool: 'web', powerInterface: 'redfish', resources: {}, ...spec },
  status: { state: 'off', stateSince: '2026-11-16T09:00:00Z', phase: 'idle', phaseSince: '2026-11-16T09:00:00Z', reason: '', powerState: 'off', ...status },
});

test('every state has a glyph, a role and a sentence', () => {
  for (const [status, spec, role, text] of [
    [{}, {}, 'off', 'off · 3 h'],
    [{ state: 'powering-on', phase: 'booting', stateSince: '2026-11-16T11:57:50Z', deadline: '2026-11-16T12:12:50Z' }, {}, 'accent', 'booting · 2:10 of 15:00'],
    [{ state: 'ready', phase: 'serving', powerState: 'on' }, {}, 'ready', 'ready · 3 h'],
    [{ state: 'error', phase: 'quarantined', reason: 'never joined, 3 of 3' }, {}, 'error', 'quarantined · never joined, 3 of 3'],
    [{ powerState: 'unknown', phaseSince: '2026-11-16T11:56:00Z' }, {}, 'unknown', 'BMC silent · 4 min'],
    [{}, { hold: { by: 'ops@site', until: '2026-11-16T14:00:00Z' } }, 'held', /^held by ops@site · until \d\d:00$/],
    [{}, { admin: 'maintenance' }, 'held', 'maintenance · 3 h'],
  ] as const) {
    const said = host(one(status as never, spec as never), NOW);
    expect(said.role).toBe(role);
    expect(said.text).toEqual(typeof text === 'string' ? text : expect.stringMatching(text));
    expect(said.glyph).not.toBe('');
  }
  expect(host({ name: 'a', spec: one({}).spec }, NOW).role).toBe('unknown');
});

test('the worst comes first', () => {
  expect(Object.entries(RANK).sort((a, b) => a[1] - b[1]).map(([role]) => role)).toEqual(['error', 'unknown', 'draining', 'accent', 'held', 'ready', 'off']);
});

test('conditions are judged by what they mean', () => {
  for (const [type, status, role] of [
    ['Ready', 'True', 'ready'],
    ['Ready', 'False', 'draining'],
    ['SizeReached', 'False', 'draining'],
    ['Quarantined', 'True', 'draining'],
    ['Quarantined', 'False', 'off'],
    ['Held', 'True', 'held'],
    ['ScalingUp', 'True', 'accent'],
    ['ScalingUp', 'False', 'off'],
    ['BMCReachable', 'Unknown', 'unknown'],
  ] as const)
    expect(condition(type, status)).toBe(role);
});
