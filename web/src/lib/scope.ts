// Pages that can be about one cluster alone, and links to them. Pure, tested.

const PAGES = new Set(['/', '/pools', '/pending', '/decisions']);

/** Whether a page can be about one cluster. */
export const knowsClusters = (path: string): boolean => PAGES.has(path);

/** The same link about `cluster`, where its page can be about one. */
export function scoped(href: string, cluster: string): string {
  const [path = '/', query = ''] = href.split('?');
  if (!cluster || !knowsClusters(path)) return href;
  const asked = new URLSearchParams(query);
  asked.set('cluster', cluster);
  return `${path}?${asked}`;
}
