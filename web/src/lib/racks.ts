// Hosts in their racks, worked out once for each answer of the server. Pure, tested.

import { known, type Host, type Rack } from './types.ts';

/** `free`: empty units between it and the next one below. */
export type Slot = { host: Host; slot: number; height: number; free: number };
export type Column = { name: string; units: number; cap?: number; drawn: number; slots: Slot[] };

/** Made once: comparing with options anew each time takes many times as long. */
const names = new Intl.Collator('en', { numeric: true });

/** Everything that a rack shows of a host. Two answers that agree in it are the same host to look at. */
function face({ spec, status, metrics }: Host): string {
  return [spec.pool, spec.rack, spec.slot, spec.height, spec.admin, spec.hold?.by, spec.hold?.until, spec.maxWatts, status?.state, status?.stateSince, status?.phase, status?.phaseSince, status?.deadline, status?.reason, status?.powerState, status?.failures?.length, known(metrics?.cpuPermille), known(metrics?.memoryPermille), known(metrics?.milliwatts), metrics?.at].join('\u0000');
}

type Seen = { face: string; version: string | undefined; host: Host };

/** Keeps the hosts that look as before as they were, so that only what changed is drawn anew. */
export class Faces {
  #seen = new Map<string, Seen>();

  keep(hosts: Host[]): Host[] {
    const next = new Map<string, Seen>();
    const kept = hosts.map((host) => {
      const [mine, before] = [face(host), this.#seen.get(host.name)];
      const same = before && before.face === mine && before.version === host.resource_version;
      const entry = same ? before : { face: mine, version: host.resource_version, host };
      next.set(host.name, entry);
      return entry.host;
    });
    this.#seen = next;
    return kept;
  }
}

/** Racks by name, each with its hosts from the top unit down. */
export function columns(hosts: Host[], racks: Rack[]): Column[] {
  const by = new Map<string, Host[]>();
  for (const one of hosts) {
    const name = one.spec.rack ?? 'no rack';
    const there = by.get(name);
    if (there) there.push(one);
    else by.set(name, [one]);
  }
  const specs = new Map(racks.map((rack) => [rack.name, rack.spec]));
  return [...by.entries()].sort(([a], [b]) => names.compare(a, b)).map(([name, members]) => {
    let next = 1;
    let above: Slot | undefined;
    const slots: Slot[] = members.sort((a, b) => (a.spec.slot ?? 999) - (b.spec.slot ?? 999) || names.compare(a.name, b.name)).map((host) => {
      const [slot, height] = [host.spec.slot ?? next, host.spec.height ?? 1];
      const free = above ? Math.max(0, slot - next) : 0;
      next = slot + height;
      return (above = { host, slot, height, free });
    });
    const drawn = members.reduce((sum, one) => sum + (known(one.metrics?.milliwatts) ?? 0), 0);
    return { name, units: Math.max(specs.get(name)?.units ?? 0, next - 1), cap: specs.get(name)?.wattCap, drawn, slots: slots.sort((a, b) => b.slot - a.slot) };
  });
}
