// One stream of changes for the whole page. Each change names the one before it, and heartbeats carry the last number: a
// gap or a reordering makes the page read everything anew, so that what is shown is never a mixture of two moments.

import { headers, identity, whenRefused } from './api.ts';
import { judge, type Change } from './sequence.ts';
import { time } from './time.ts';

export type { Change };

type Listener = (change: Change | 'resync') => void;

/** No sign of life for this long, heartbeats included, and the data counts as stale. */
const SILENT = 4_000;
/** Older than this, nothing may be done on the strength of it. */
const UNSAFE = 30_000;

class Live {
  /** What time it is where the server lives: everything that it tells is dated by that. */
  now = $state(Date.now());
  /** The same, but only every ten seconds of ours: for ages of things that are many. */
  calm = $state(Date.now());
  /** How many times faster than ours its clock runs. */
  rate = $state(1);
  /** Our own clock, by which silence is measured. */
  here = $state(Date.now());
  heard = $state(0);
  connected = $state(false);
  /** Nobody is signed in: there is nothing to hear. */
  refused = $state(false);
  sequence = 0;
  #listeners = new Set<Listener>();
  #others: BroadcastChannel | undefined;
  #stop: AbortController | undefined;
  /** Ends the listening of whoever was signed in before. */
  #left: AbortController | undefined;
  #wait = 250;

  get age() {
    return this.heard ? Math.max(0, this.here - this.heard) : Infinity;
  }
  get stale() {
    return !this.refused && this.heard > 0 && this.age > SILENT;
  }
  get unsafe() {
    return this.refused || this.age > UNSAFE;
  }

  start() {
    this.heard = Date.now(); // Silence counts from the beginning.
    let calmed = 0;
    setInterval(() => {
      this.here = Date.now();
      this.now = time.now(this.here);
      if (Math.floor(this.here / 10_000) !== calmed) {
        calmed = Math.floor(this.here / 10_000);
        this.calm = this.now;
      }
      this.rate = time.rate;
      if (this.stale) this.connected = false;
    }, 500);
    addEventListener('online', () => this.#again(0));
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden && this.stale) this.#again(0);
    });
    whenRefused(() => (this.refused = true));
    this.#join();
  }

  /** After signing in anew: listens as whoever that is, and everything that is shown is read again. */
  again() {
    this.refused = false;
    this.heard = Date.now();
    this.#left?.abort();
    this.#stop?.abort();
    this.#others?.close();
    this.#wait = 250;
    this.#join();
    this.#tell('resync');
  }

  // Browsers keep few connections to one server: tabs of one person share a stream. One reads it and tells the others;
  // when it closes, the next one goes on from where it is.
  #join() {
    const name = `muster-news-${identity()}`;
    const left = (this.#left = new AbortController()).signal;
    this.#others = new BroadcastChannel(name);
    this.#others.onmessage = (event: MessageEvent<string>) => this.#hear(event.data);
    if (navigator.locks) navigator.locks.request(name, { signal: left }, () => this.#run(left)).catch(() => {});
    else void this.#run(left);
  }

  #hear(part: string) {
    this.heard = Date.now();
    this.connected = true; // Also after a silence on the same connection.
    this.#take(part);
  }

  on(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #again(wait: number) {
    this.#wait = wait;
    this.#stop?.abort();
  }

  async #run(left: AbortSignal) {
    while (!left.aborted) {
      this.#stop = new AbortController();
      try {
        await this.#read(this.#stop.signal);
      } catch {
        // The state says that it is not connected; trying again is all there is to do.
      }
      if (left.aborted) return;
      this.connected = false;
      await new Promise((done) => setTimeout(done, this.#wait));
      this.#wait = Math.min(Math.max(250, this.#wait * 2), 3_000);
    }
  }

  async #read(signal: AbortSignal) {
    const watchdog = setInterval(() => {
      if (this.connected && Date.now() - this.heard > 3 * SILENT) this.#stop?.abort();
    }, 1_000);
    try {
      const query = this.sequence ? `?after=${this.sequence}` : '';
      const response = await fetch(`/api/v1/stream${query}`, { headers: headers({ Accept: 'text/event-stream' }), signal, cache: 'no-store' });
      if (response.status === 401) this.refused = true;
      else if (response.ok) this.refused = false;
      if (!response.ok || !response.body) throw new Error(String(response.status));
      this.connected = true;
      this.heard = Date.now();
      this.#wait = 250;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        rest += value;
        const parts = rest.split(/\r?\n\r?\n/);
        rest = parts.pop() ?? '';
        for (const part of parts) {
          this.#hear(part);
          this.#others?.postMessage(part);
        }
      }
    } finally {
      clearInterval(watchdog);
    }
  }

  #take(text: string) {
    let event = 'message';
    const data: string[] = [];
    for (const line of text.split(/\r?\n/)) {
      if (line.startsWith('event:')) event = line.slice(6).trim();
      else if (line.startsWith('data:')) data.push(line.slice(5).trimStart());
    }
    if (!data.length) return;
    let said: Change;
    try {
      said = JSON.parse(data.join('\n')) as Change;
    } catch {
      return this.#again(0); // Not ours, or cut in the middle: begin the stream anew.
    }
    const verdict = judge(this.sequence, event, said);
    this.sequence = verdict.sequence;
    if (verdict.tell) this.#tell(verdict.tell);
  }

  #tell(what: Change | 'resync') {
    for (const listener of this.#listeners) listener(what);
  }
}

export const live = new Live();
