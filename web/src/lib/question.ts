// What-if questions as they stand in the URL, and as the API takes them. Pure, tested.

import { quantity } from './format.ts';
import type { Fix } from './types.ts';

export type Question = {
  cluster_id?: string;
  add?: { count: number; cpu?: string; memory?: string; gpu?: number; tolerate?: string[]; selector?: string[] };
  fail?: string[];
  remove?: string[];
  set?: string[];
  consolidate?: boolean;
};

const words = (text: string | null): string[] => (text ?? '').split(',').map((one) => one.trim()).filter(Boolean);

/** Everything has a default, so that an empty URL is a question too. */
export function questionFrom(query: URLSearchParams): Question {
  const cluster = query.get('cluster');
  const base: Question = cluster ? { cluster_id: cluster } : {};
  switch (query.get('ask') ?? 'add') {
    case 'fail':
      return { ...base, fail: [`${query.get('what') ?? 'rack'}/${query.get('name') ?? ''}`] };
    case 'bounds':
      return { ...base, set: [`${query.get('pool') ?? ''}.min=${query.get('min') ?? '0'}`, `${query.get('pool') ?? ''}.max=${query.get('max') ?? '10'}`] };
    case 'set':
      return { ...base, set: words(query.get('set')) };
    case 'fewer':
      return { ...base, consolidate: true };
    case 'now':
      return base;
    default: {
      const gpus = Number(query.get('gpus') ?? '0');
      const [tolerate, selector] = [words(query.get('tolerate')), words(query.get('selector'))];
      return { ...base, add: { count: Number(query.get('count') ?? '20'), cpu: query.get('cpu') ?? '4', memory: query.get('memory') ?? '16Gi', ...(gpus > 0 ? { gpu: gpus } : {}), ...(tolerate.length ? { tolerate } : {}), ...(selector.length ? { selector } : {}) } };
    }
  }
}

/** A suggested change as a question, if it is one that can be tried: bounds and sizes of pools. */
export function questionOf(fix: Pick<Fix, 'object' | 'patch'>, cluster?: string): string | undefined {
  const [kind, pool] = fix.object.split('/');
  if (kind !== 'nodepools' || !pool) return undefined;
  const spec = (fix.patch as { spec?: { nodeCount?: number; autoscaling?: { minNodes?: number; maxNodes?: number } } }).spec;
  const set = [
    ...(spec?.autoscaling?.maxNodes !== undefined ? [`${pool}.max=${spec.autoscaling.maxNodes}`] : []),
    ...(spec?.autoscaling?.minNodes !== undefined ? [`${pool}.min=${spec.autoscaling.minNodes}`] : []),
    ...(spec?.nodeCount !== undefined ? [`${pool}.count=${spec.nodeCount}`] : []),
  ];
  return set.length ? new URLSearchParams({ ask: 'set', set: set.join(','), ...(cluster ? { cluster } : {}) }).toString() : undefined;
}

type PodPatch = { spec?: { containers?: { resources?: { requests?: Record<string, string> } }[]; nodeSelector?: Record<string, string | null>; tolerations?: { key?: string; value?: string }[] } };
/** `524288Mi` and `512 GiB` are both `512Gi`, `64000m` and `64 cpu` both `64`. */
const amount = (text: string): string => quantity(text).replace(/ (?:cpu|B)$/, '').replace(/ ([KMGTP])iB$/, '$1i');

/**
 * A change of pods as a question that comes near to it: as many pods of that shape, added. What else they ask for is not
 * in the change, so it is for somebody to look at, not a price to be told.
 */
export function likeIt(fix: Pick<Fix, 'object' | 'patch' | 'helps'>, requests: Record<string, string>, cluster?: string): string | undefined {
  if (!fix.object.startsWith('pods/')) return undefined;
  const spec = (fix.patch as PodPatch).spec ?? {};
  const asked = { ...requests, ...spec.containers?.[0]?.resources?.requests };
  const tolerate = (spec.tolerations ?? []).flatMap(({ key, value }) => (key ? [value ? `${key}=${value}` : key] : []));
  const selector = Object.entries(spec.nodeSelector ?? {}).flatMap(([key, value]) => (value === null ? [] : [`${key}=${value}`]));
  const gpus = asked['nvidia.com/gpu'] ?? asked.gpu;
  return new URLSearchParams({
    ask: 'add',
    count: String(fix.helps),
    cpu: amount(asked.cpu ?? '0'),
    memory: amount(asked.memory ?? '0'),
    ...(gpus ? { gpus: String(Number.parseInt(gpus, 10)) } : {}),
    ...(tolerate.length ? { tolerate: tolerate.join(',') } : {}),
    ...(selector.length ? { selector: selector.join(',') } : {}),
    ...(cluster ? { cluster } : {}),
  }).toString();
}

/** Where the command line asks when nothing else is said. */
const USUAL = 'http://127.0.0.1:8080';
const quoted = (text: string): string => (/^[\w.,:/=@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** The same question on the command line. `cluster` is the name of the one that is asked about, where there are several. */
export function commandOf(question: Question, server: string, cluster?: string): string {
  const flags: [string, string | undefined][] = [
    ['add', question.add && String(question.add.count)],
    ['cpu', question.add?.cpu],
    ['memory', question.add?.memory],
    ['gpu', question.add?.gpu ? String(question.add.gpu) : undefined],
    ...(question.add?.tolerate ?? []).map((one): [string, string] => ['tolerate', one]),
    ...(question.add?.selector ?? []).map((one): [string, string] => ['selector', one]),
    ...(question.fail ?? []).map((one): [string, string] => ['fail', one]),
    ...(question.remove ?? []).map((one): [string, string] => ['remove', one]),
    ...(question.set ?? []).map((one): [string, string] => ['set', one]),
    ['cluster', cluster],
    ['server', server === USUAL ? undefined : server],
  ];
  const words = flags.flatMap(([name, value]) => (value ? [`--${name} ${quoted(value)}`] : []));
  return ['muster simulate --live', ...(question.consolidate ? ['--consolidate'] : []), ...words].join(' ');
}
