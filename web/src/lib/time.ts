// What time it is where the server lives. A server whose clock runs at another speed than ours (a demonstration that is
// faster than life) says so with every answer; of any other we take our own clock. Pure but for the clock, tested.

/** Answers that are nearer to each other than this say nothing about speed. */
const APART = 1_500;
/** Speeds are measured over at most this long: a demonstration on a busy machine goes slower. */
const WINDOW = 10_000;

export class ServerTime {
  #heard: { there: number; here: number }[] = [];

  /** How many of its milliseconds pass in one of ours. */
  rate = 1;

  note(text: string | null, here = Date.now()) {
    const there = text ? Date.parse(text) : NaN;
    if (!Number.isFinite(there)) return;
    this.#heard = this.#heard.filter((one) => here - one.here < WINDOW && one.there <= there);
    const first = this.#heard[0];
    if (first && here - first.here >= APART) this.rate = (there - first.there) / (here - first.here);
    this.#heard.push({ there, here });
  }

  /** Whether its time is not ours. */
  get strange() {
    return this.#heard.length > 0;
  }

  now(here = Date.now()): number {
    const last = this.#heard.at(-1);
    return last ? last.there + (here - last.here) * this.rate : here;
  }
}

export const time = new ServerTime();
