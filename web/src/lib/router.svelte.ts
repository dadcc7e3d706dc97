// All state that a person may want to share or come back to is in the URL.

export type Route = { path: string; parts: string[]; query: URLSearchParams };

/** What cannot be decoded is taken as it is written: no object has such a name. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function read(): Route {
  const path = location.pathname.replace(/\/+$/, '') || '/';
  const parts = path.split('/').filter(Boolean).map(decoded);
  return { path, parts, query: new URLSearchParams(location.search) };
}

class Router {
  route = $state.raw<Route>(read());

  constructor() {
    addEventListener('popstate', () => (this.route = read()));
  }

  go(href: string, replace = false) {
    if (href === location.pathname + location.search) return;
    history[replace ? 'replaceState' : 'pushState'](null, '', href);
    this.route = read();
    if (!replace) scrollTo(0, 0);
  }

  /** Sets query parameters of the present page; empty ones go away. */
  set(changes: Record<string, string | undefined>, replace = true) {
    const query = new URLSearchParams(this.route.query);
    for (const [key, value] of Object.entries(changes)) {
      if (value) query.set(key, value);
      else query.delete(key);
    }
    const text = query.toString();
    this.go(this.route.path + (text ? `?${text}` : ''), replace);
  }
}

export const router = new Router();

/** Lets plain links work without a reload, and leaves modified clicks to the browser. */
export function follow(event: MouseEvent) {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = (event.target as Element | null)?.closest?.('a[href]');
  if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute('download') || link.origin !== location.origin) return;
  if (link.pathname.startsWith('/docs') || link.pathname.startsWith('/api')) return;
  event.preventDefault();
  router.go(link.pathname + link.search);
}
