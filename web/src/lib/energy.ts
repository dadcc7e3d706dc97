// What each host draws, used and saved, from its record. Pure, tested.

import { known, type EnergyShare, type Host } from './types.ts';

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
