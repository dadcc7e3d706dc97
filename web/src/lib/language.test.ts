import { expect, test } from 'vitest';
import { condition, host, RANK, hostRole } from './language.ts';
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
    [{ state: 'error', phase: 'quarantined', reason: 'off after a failed attempt', failures: [{ at: '', reason: 'NeverJoined', message: 'no node within 15m' }, { at: '', reason: 'NeverJoined', message: 'no node within 15m' }] }, {}, 'error', 'quarantined · no node within 15m (2 times)'],
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
    ['BootFailed', 'True', 'draining'],
    ['UnexpectedOn', 'False', 'off'],
  ] as const)
    expect(condition(type, status)).toBe(role);
  expect(condition('Ready', 'False', 'Idle'), 'off, because nobody needs it').toBe('off');
});

test('the role alone is the role of the sentence', () => {
  const base: Host = { name: 'a', spec: { pool: 'p', powerInterface: 'redfish', resources: {} }, status: { state: 'off', stateSince: '2026-01-01T00:00:00Z', phase: 'idle', phaseSince: '2026-01-01T00:00:00Z', reason: '', powerState: 'off' } };
  const status = base.status as NonNullable<Host['status']>;
  const cases: Host[] = [base, { ...base, status: undefined }, { ...base, spec: { ...base.spec, hold: {} } }, { ...base, spec: { ...base.spec, admin: 'maintenance' } }];
  for (const state of ['off', 'powering-on', 'ready', 'draining', 'error'] as const) for (const phase of ['serving', 'degraded', 'quarantined']) for (const powerState of ['on', 'off', 'unknown'] as const) cases.push({ ...base, status: { ...status, state, phase, powerState } });
  for (const one of cases) expect(hostRole(one)).toBe(host(one, Date.parse('2026-01-02T00:00:00Z')).role);
});
