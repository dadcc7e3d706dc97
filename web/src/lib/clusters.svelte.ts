// Which cluster the page is about, where there are several. The choice is in the URL, as `cluster`.

import { router } from './router.svelte.ts';
import { scoped } from './scope.ts';
import type { Cluster } from './types.ts';

class Clusters {
  /** Those that the caller sees. */
  list = $state.raw<Cluster[]>([]);

  /** With one there is nothing to choose. */
  get several() {
    return this.list.length > 1;
  }

  /** The id of the one that is chosen, or nothing for all of them. */
  get chosen(): string {
    return router.route.query.get('cluster') ?? '';
  }

  name(id: string): string {
    return this.list.find((one) => one.id === id)?.name ?? id;
  }

  /** `path` of the API, asked about the chosen cluster alone. */
  ask(path: string): string {
    return this.chosen ? `${path}${path.includes('?') ? '&' : '?'}cluster_id=${encodeURIComponent(this.chosen)}` : path;
  }

  /** A link that keeps the choice, where the page behind it knows of one. */
  keep(href: string): string {
    return scoped(href, this.chosen);
  }
}

export const clusters = new Clusters();
