import { expect, test } from 'vitest';
import { arrange, length, say, spaced } from './settings.ts';

test('values read as people say them', () => {
  for (const [name, value, text] of [
    ['hosts.energyPriceMicros', '280000', '€0.28 per kWh'], ['hosts.highMarkPercent', '70', '70 % of what is requested'],
    ['limits.body-bytes', '1048576', '1 MiB'], ['limits.requests-per-second', '50000', '50,000 a second'], ['limits.requests-per-second', '0', 'no limit'],
    ['audit.keep-files', '0', 'all'], ['prometheus.timeout', '10s', '10 s'], ['status.lease', '1h30m', '1 h 30 min'], ['lead', 'true', 'yes'],
    ['store', 'embedded', 'embedded'], ['tls.key', '', 'not set'], ['hosts.freeze', 'none', 'no'], ['policy.quarantineAfter', '3', '3 failures in a day'],
    ['policy.onUnexpectedOff', 'hold', 'leave it off'], ['policy.forceOff', 'allowed', 'allowed'], ['auth.k8s.audiences', '["muster"]', 'muster'], ['auth.proxies', '[]', 'none'],
    ['hosts.time-factor', '20', '20 times as fast'], ['hosts.freezeSince', '2026-11-16T02:00:00Z', '2026-11-16 02:00:00 UTC'], ['listen', '127.0.0.1:8080', '127.0.0.1:8080'],
  ] as const)
    expect(say(name, value, '€'), name).toBe(text);
  expect(length('250ms')).toBe('250 ms');
  expect(length('5 apples')).toBe('5 apples');
  expect(spaced('powerConfirmDeadline')).toBe('power confirm deadline');
});

test('objects are taken apart and lists are tables', () => {
  const one = (name: string, value: string, origin = 'default', help = 'address and port') => ({ name, value, origin, help });
  const { groups, lists } = arrange([
    one('listen', '127.0.0.1:1', 'flag --listen'),
    one('auth.bindings', '[{"user":"ann@example.com","project":"lab","role":"admin"},{"group":"ops","role":"viewer"}]'),
    one('auth.proxies', '[]'),
    one('hosts.currency', 'EUR'),
    one('hosts.energyPriceMicros', '280000', '/baremetal/global/config'),
    one('hosts.time-factor', '1'),
    one('hosts.policy', '{"forceOff":"allowed","quarantineAfter":3}'),
    one('hosts.deadlines', '{"bootDeadline":"40m"}', '/baremetal/global/config'),
  ]);
  expect(groups.map((group) => [group.title, group.rows.length])).toEqual([['This server', 3], ['All hosts', 2], ['What Muster does by itself', 2], ['Deadlines that differ from the default', 1]]);
  const rows = groups.flatMap((group) => group.rows);
  const value = (name: string) => rows.find((row) => row.name === name)?.value;
  expect(value('hosts.energyPriceMicros')).toBe('€0.28 per kWh');
  expect(value('hosts.policy.quarantineAfter')).toBe('3 failures in a day');
  expect(value('hosts.deadlines.bootDeadline')).toBe('40 min');
  expect(rows.every((row) => !/[{}]/.test(row.value))).toBe(true);
  expect(lists).toEqual([{ name: 'auth.bindings', title: 'Who may do what', origin: 'default', columns: ['user', 'group', 'project', 'role'], rows: [['ann@example.com', '–', 'lab', 'admin'], ['–', 'ops', 'all', 'viewer']] }]);
});

test('what cannot be read is shown as it is', () => {
  const { groups } = arrange([{ name: 'auth.tokens', value: '(hidden)', origin: 'default' }, { name: 'odd', value: '{broken', origin: 'file x' }]);
  expect(groups[0]?.rows.map((row) => row.value)).toEqual(['(hidden)', '{broken']);
});
