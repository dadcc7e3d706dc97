// Something that is read from the API and kept up to date. Each panel has its own: one that fails leaves the others alone.

import { get, Problem } from './api.ts';
import { live, type Change } from './live.svelte.ts';

export class Resource<T> {
  value = $state.raw<T | undefined>(undefined);
  problem = $state.raw<Problem | undefined>(undefined);
  loading = $state(true);
  at = $state(0);
  #path: string;
  #read: (path: string, signal: AbortSignal) => Promise<T>;
  #abort: AbortController | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #last = 0;
  /** How long the last reading took. */
  #took = 0;
  /** Something changed while it was being read. */
  #again = false;

  constructor(path: string, read: (path: string, signal: AbortSignal) => Promise<T> = (from, signal) => get<T>(from, signal)) {
    this.#path = path;
    this.#read = read;
  }

  set path(path: string) {
    if (path === this.#path) return;
    this.#path = path;
    this.value = undefined;
    void this.load();
  }

  async load() {
    this.#abort?.abort();
    const abort = (this.#abort = new AbortController());
    this.loading = true;
    this.#last = Date.now();
    try {
      const value = await this.#read(this.#path, abort.signal);
      if (abort.signal.aborted) return;
      this.value = value;
      this.problem = undefined;
      this.at = Date.now();
      this.#took = this.at - this.#last;
    } catch (cause) {
      if (abort.signal.aborted) return;
      this.problem = cause instanceof Problem ? cause : new Problem(0, 'ERROR', String(cause));
    }
    this.loading = false;
    if (this.#again) this.soon();
  }

  /**
   * Reads again soon, however many changes come in until then: at most twice a second, and at most a fifth of the time
   * is spent reading: an answer about thousands of machines is not fetched again at once. A read that is under way is waited
   * for: where changes come faster than answers, giving it up for the next one would never end.
   */
  soon() {
    if (this.loading) {
      this.#again = true;
      return;
    }
    this.#again = false;
    if (this.#timer) return;
    const wait = Math.max(50, 500 - (Date.now() - this.#last), 4 * this.#took);
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      void this.load();
    }, wait);
  }

  stop() {
    clearTimeout(this.#timer);
    this.#abort?.abort();
  }
}

/** Reads `path` now and whenever something of `kinds` changes, as long as the component lives. */
export function use<T>(path: () => string, kinds: string[], read?: (path: string, signal: AbortSignal) => Promise<T>): Resource<T> {
  const resource = new Resource<T>(path(), read);
  $effect(() => {
    resource.path = path();
  });
  $effect(() => {
    void resource.load();
    const off = live.on((change: Change | 'resync') => {
      if (change === 'resync' || kinds.includes(change.kind)) resource.soon();
    });
    // Readings that no change announces (watts, ages) and a stream that is away for long.
    const tick = setInterval(() => resource.soon(), 15_000);
    return () => {
      off();
      clearInterval(tick);
      resource.stop();
    };
  });
  return resource;
}

/** Lists come in pages of 100; this many are put together before a page says that it shows a part. */
const MOST_PAGES = 20;

/** The same for a list that may be longer than one page. */
export function usePages<T extends { total: number; next_cursor?: string | null }>(path: () => string, name: keyof T & string, kinds: string[]): Resource<T> {
  return use<T>(path, kinds, async (from, signal) => {
    const and = from.includes('?') ? '&' : '?';
    const first = await get<T>(`${from}${and}limit=100`, signal);
    let [last, all] = [first, first[name] as unknown[]];
    for (let page = 1; page < MOST_PAGES && last.next_cursor; page += 1) {
      last = await get<T>(`${from}${and}limit=100&cursor=${encodeURIComponent(last.next_cursor)}`, signal);
      all = [...all, ...(last[name] as unknown[])];
    }
    return { ...first, [name]: all };
  });
}
