// Settings as people read them: money, lengths of time, sizes and shares instead of what is stored. Pure, tested.

import { bytes, money, plural } from './format.ts';

export type Setting = { name: string; value: string; origin: string; help?: string };
/** A row: what it is about, what is in force, and the name by which it is set. */
export type Row = { name: string; title: string; value: string; origin: string; set: boolean };
export type Group = { title: string; rows: Row[] };
/** A list of like things, such as who may do what. */
export type List = { name: string; title: string; origin: string; columns: string[]; rows: string[][] };

const HOSTS: Record<string, string> = {
  freeze: 'Freeze', freezeReason: 'Reason of the freeze', freezeBy: 'Frozen by', freezeSince: 'Frozen since',
  highMarkPercent: 'Pools grow above', lowMarkPercent: 'Pools shrink below',
  maxPowerOperations: 'Power operations at once', maxPowerOperationsPerRack: 'Power operations at once in one rack', maxStartsPerSecond: 'Machines started',
  prometheusUrl: 'Prometheus that answers triggers', energyPriceMicros: 'Price of energy', currency: 'Currency',
};
const POLICY: Record<string, string> = {
  onUnexpectedOff: 'Somebody switches a machine off that should be on', onUnexpectedOn: 'Somebody switches a machine on that should be off',
  nodeAtOff: 'The node of a machine that is off', onNodeDeleted: 'Somebody deletes the node of a machine that is on',
  forceOff: 'Cutting the power of a machine that does not shut down', cycleLost: 'One power cycle for a node that is lost',
  outOfService: 'Telling Kubernetes that a machine is proved off', resetBmc: 'Restarting a BMC that is stuck',
  quarantineAfter: 'A machine is set aside after', maxCyclesPerDay: 'Power-ons of one machine',
};
const WORDS: Record<string, Record<string, string>> = {
  onUnexpectedOff: { hold: 'leave it off', restart: 'switch it on again', adopt: 'take it as off' },
  onUnexpectedOn: { adopt: 'leave it on and use it', 'enforce-off': 'switch it off after a while' },
  nodeAtOff: { 'keep-tainted': 'stays, tainted', delete: 'is deleted', leave: 'is left as it is' },
  onNodeDeleted: { wait: 'wait for it to register again', 'stand-down': 'shut the machine down' },
  freeze: { none: 'no', frozen: 'yes: nothing acts', 'all-on': 'yes: everything is woken' },
};
const TITLES: Record<string, string> = {
  store: 'Where records are kept', 'auth.mode': 'How people prove who they are', 'log.level': 'How much is logged', 'log.format': 'Form of the log', 'bmc.allow': 'Addresses that BMCs may have',
};
const LISTS: Record<string, string> = { 'auth.bindings': 'Who may do what', 'auth.tokens': 'Tokens' };
/** Values that mean something else than their number. */
const ZERO: Record<string, string> = { 'limits.requests-per-second': 'no limit', 'audit.keep-files': 'all' };

const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

/** `bootDeadline` as `boot deadline`, `keep-files` as `keep files`. */
export const spaced = (name: string): string => name.replace(/([a-z])([A-Z])/g, '$1 $2').replaceAll('-', ' ').toLowerCase();

/** `1h30m`, as it is written, as `1 h 30 min`; what is no length of time stays as it is. */
export function length(text: string): string {
  if (!/^(\d+(\.\d+)?(h|ms|m|s))+$/.test(text)) return text;
  const UNITS: Record<string, string> = { h: 'h', m: 'min', s: 's', ms: 'ms' };
  return [...text.matchAll(/(\d+(?:\.\d+)?)(h|ms|m|s)/g)].map(([, number, unit]) => `${number} ${UNITS[unit ?? ''] ?? ''}`).join(' ');
}

/** One value, by what its name says it is. */
export function say(name: string, value: string, currency = ''): string {
  const last = name.split('.').at(-1) ?? name;
  if (value === '' || value === 'null') return 'not set';
  if (ZERO[name] && value === '0') return ZERO[name];
  if (WORDS[last]?.[value]) return WORDS[last][value];
  if (value === 'true' || value === 'false') return value === 'true' ? 'yes' : 'no';
  const number = /^-?\d+(\.\d+)?$/.test(value) ? Number(value) : undefined;
  if (number !== undefined) {
    if (last === 'energyPriceMicros') return `${money(number, currency)} per kWh`;
    if (last.endsWith('Micros')) return money(number, currency);
    if (last.endsWith('Percent')) return `${number} % of what is requested`;
    if (last.endsWith('-bytes')) return bytes(number);
    if (last === 'maxStartsPerSecond') return `${plural(number, 'machine')} a second`;
    if (last.endsWith('-per-second')) return `${number.toLocaleString('en')} a second`;
    if (last === 'quarantineAfter') return `${plural(number, 'failure')} in a day`;
    if (last === 'maxCyclesPerDay') return `${number} in a day`;
    if (last === 'time-factor') return number === 1 ? 'as in life' : `${number} times as fast`;
    return number.toLocaleString('en');
  }
  if (/^\d{4}-\d\d-\d\dT/.test(value)) return value.replace('T', ' ').replace(/(:\d\d)(\.\d+)?Z$/, '$1 UTC');
  if (/^\[.*\]$/s.test(value)) {
    const list = parsed(value);
    if (Array.isArray(list) && list.every((one) => typeof one !== 'object')) return list.length ? list.join(', ') : 'none';
  }
  return length(value);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const plain = (value: unknown): string => (value === null || value === undefined ? '' : typeof value === 'string' ? value : JSON.stringify(value));

/** Settings by what they are about, objects taken apart; lists of objects apart as tables. */
export function arrange(settings: Setting[]): { groups: Group[]; lists: List[] } {
  // A code of letters stands apart from its number, a sign does not.
  const code = settings.find((one) => one.name === 'hosts.currency')?.value ?? '';
  const currency = /[a-z]$/i.test(code) ? `${code} ` : code;
  const [server, hosts, policy, deadlines]: Row[][] = [[], [], [], []];
  const lists: List[] = [];
  for (const { name, value, origin, help } of settings) {
    const set = origin !== 'default';
    const inside = /^[[{]/.test(value) ? parsed(value) : undefined;
    if (name === 'hosts.policy' || name === 'hosts.deadlines') {
      const part = name.slice('hosts.'.length);
      for (const [key, one] of Object.entries((inside ?? {}) as Record<string, unknown>)) {
        const row = { name: `${name}.${key}`, title: POLICY[key] ?? capital(spaced(key)), value: say(`${part}.${key}`, plain(one), currency), origin, set };
        (part === 'policy' ? policy : deadlines)?.push(row);
      }
    } else if (Array.isArray(inside) && inside.some((one) => typeof one === 'object' && one !== null)) {
      const columns = [...new Set(['user', 'group', ...inside.flatMap((one) => Object.keys(one as object))])].filter((key) => inside.some((one) => key in (one as object)));
      lists.push({ name, title: LISTS[name] ?? capital(help ?? spaced(name)), origin, columns, rows: inside.map((one) => columns.map((key) => plain((one as Record<string, unknown>)[key]) || (key === 'project' ? 'all' : '–'))) });
    } else if (name.startsWith('hosts.') && HOSTS[name.slice('hosts.'.length)]) {
      hosts?.push({ name, title: HOSTS[name.slice('hosts.'.length)] ?? name, value: say(name, value, currency), origin, set });
    } else {
      server?.push({ name, title: TITLES[name] ?? capital(help || spaced(name)), value: say(name, value, currency), origin, set });
    }
  }
  const groups = [
    { title: 'This server', rows: server ?? [] },
    { title: 'All hosts', rows: hosts ?? [] },
    { title: 'What Muster does by itself', rows: policy ?? [] },
    { title: 'Deadlines that differ from the default', rows: deadlines ?? [] },
  ];
  return { groups: groups.filter((one) => one.rows.length), lists };
}
