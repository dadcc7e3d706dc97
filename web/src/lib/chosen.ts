// Two decisions that are chosen to be compared, as they stand in the URL. Pure, tested.

export type Chosen = { a?: string; b?: string };

/** The number behind the dash; decisions of one cluster count up with time. */
const number = (id: string): number => Number(id.slice(id.lastIndexOf('-') + 1));
const cluster = (id: string): string => id.slice(0, id.lastIndexOf('-'));

/** Chooses one, or takes it back. Whoever chooses a third means it instead of the second. */
export function choose({ a, b }: Chosen, id: string): Chosen {
  if (id === a) return { a: b };
  if (id === b) return { a };
  return a ? { a, b: id } : { a: id };
}

/** Where two are compared, the older one first; nothing while there are not two. */
export function compareLink({ a, b }: Chosen): string | undefined {
  if (!a || !b) return undefined;
  const [from, to] = number(a) <= number(b) ? [a, b] : [b, a];
  return `/decisions/compare?${new URLSearchParams({ a: from, b: to })}`;
}

/** Why these two cannot be compared, or nothing. The server has the last word. */
export function apart({ a, b }: Chosen): string | undefined {
  return a && b && cluster(a) !== cluster(b) ? 'They are of two clusters: only decisions of one can be compared.' : undefined;
}
