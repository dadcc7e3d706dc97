// What the fleet is doing, in a sentence or two. Pure, tested.

import { cores, plural } from './format.ts';
import type { Overview, Series } from './types.ts';

/** The last value that is known of a series. */
export function latest(series: Series[] | undefined, name: string): number | undefined {
  const points = series?.find((one) => one.name === name)?.points ?? [];
  for (let at = points.length - 1; at >= 0; at -= 1) {
    const value = points[at]?.[1];
    if (value !== null && value !== undefined) return value;
  }
  return undefined;
}

const are = (count: number) => (count === 1 ? 'is' : 'are');

/** `one`: it is about one cluster. `22 of 40 machines are on: 572 cores for the 460 that pods ask for.` and what is not as it should be. */
export function fleet(value: Overview, series?: Series[], one = false): { state: string; trouble: string[]; coming?: string } {
  const { hosts, pending } = value;
  if (hosts.total === 0 && !one) return { state: 'No machine is registered yet.', trouble: [] };
  const [on, asked] = [latest(series, 'on_cpu'), latest(series, 'demand_cpu')];
  const whole = (millis: number) => cores(Math.round(millis / 1000) * 1000);
  const room = on === undefined ? '' : asked === undefined ? `: ${whole(on)} cores` : `: ${whole(on)} cores for the ${whole(asked)} that pods ask for`;
  const state = hosts.total === 0 ? `No machine of ours serves this cluster${on ? room : ''}.` : `${hosts.on} of ${plural(hosts.total, 'machine')} ${are(hosts.on)} on${room}.`;
  const faulty = hosts.by_state.error ?? 0;
  const waiting = pending.pods ?? 0;
  const trouble = [
    ...(faulty ? [`${plural(faulty, 'machine')} ${are(faulty)} out of service`] : []),
    ...(pending.hopeless ? [`${plural(pending.hopeless, 'pod')} ${pending.hopeless === 1 ? 'waits' : 'wait'} that no plan helps`] : []),
    ...(pending.pods === null ? ['whether pods wait is not known'] : []),
  ];
  const helped = waiting - pending.hopeless;
  return { state, trouble, ...(helped > 0 ? { coming: `${plural(helped, 'pod')} ${helped === 1 ? 'waits' : 'wait'} for a machine that is on its way.` } : {}) };
}
