// Whether an event of the stream is the next one. Pure, tested.

export type Change = { sequence: number; after: number; kind: string; part: string; name: string; deleted: boolean };
export type Verdict = { sequence: number; tell?: Change | 'resync' };

/** `last` is the number of the last event that was taken in; 0 before the first. */
export function judge(last: number, event: string, said: { sequence?: number; after?: number }): Verdict {
  const sequence = said.sequence ?? 0;
  if (event === 'resync') return { sequence, tell: 'resync' };
  // A heartbeat that is ahead: what it counts was lost on the way.
  if (event === 'beat') return sequence > last && last > 0 ? { sequence, tell: 'resync' } : { sequence: Math.max(sequence, last) };
  if (event !== 'change') return { sequence: last };
  // Said twice, or late: what came after it has been taken in.
  if (sequence <= last) return { sequence: last };
  if (last > 0 && said.after !== last) return { sequence, tell: 'resync' };
  return { sequence, tell: said as Change };
}
