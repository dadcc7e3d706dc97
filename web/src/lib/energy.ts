// What each host draws, used and saved, from its record. Pure, tested.

import { known, type EnergyReport, type EnergyShare, type Host } from './types.ts';

/** As the server counts it for pools and racks: all on is what it declares at rest, or draws now where that is more. */
export function sharesOf(hosts: Host[], price: number | null | undefined): EnergyShare[] {
  const cost = (milliwattHours: number) => (price === null || price === undefined ? null : Math.floor((milliwattHours * price) / 1e6));
  const shares = hosts.map(({ name, spec, metrics }): EnergyShare => {
    const [used, saved] = [metrics?.usedMilliwattHours ?? 0, metrics?.savedMilliwattHours ?? 0];
    const [drawn, idle] = [known(metrics?.milliwatts), spec.idleWatts === undefined ? undefined : spec.idleWatts * 1000];
    return {
      name,
      hosts: 1,
      milliwatts: drawn ?? 0,
      all_on_milliwatts: Math.max(idle ?? 0, drawn ?? 0),
      used_milliwatt_hours: used,
      saved_milliwatt_hours: saved,
      used_micros: cost(used),
      saved_micros: cost(saved),
      unmetered: drawn === undefined ? 1 : 0,
      undeclared: idle === undefined ? 1 : 0,
    };
  });
  return shares.sort((a, b) => b.milliwatts - a.milliwatts || b.used_milliwatt_hours - a.used_milliwatt_hours || (a.name ?? '').localeCompare(b.name ?? ''));
}

const MOST_STARTS = 12;

/** How many machines were switched on how often; the last bin gathers whatever is beyond. Pools may allow different numbers. */
export function wear({ cycles, cycle_budget }: Pick<EnergyReport, 'cycles' | 'cycle_budget'>) {
  const last = Math.min(MOST_STARTS, Math.max(6, ...cycles.map((one) => one.count + 1)));
  const bins = Array.from({ length: last + 1 }, (_, starts) => ({ starts, machines: 0, over: 0, beyond: starts === MOST_STARTS && last === MOST_STARTS }));
  for (const one of cycles) {
    const bin = bins[Math.min(one.count, last)];
    if (!bin) continue;
    bin.machines += 1;
    bin.over += one.count > one.budget ? 1 : 0;
  }
  const budgets = cycles.length ? cycles.map((one) => one.budget) : [cycle_budget];
  return { bins, most: Math.max(1, ...bins.map((one) => one.machines)), least: Math.min(...budgets), greatest: Math.max(...budgets) };
}
