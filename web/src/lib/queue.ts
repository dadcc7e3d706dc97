// One after the other: questions that take a server a while are not asked all at once. Pure, tested.

let last: Promise<unknown> = Promise.resolve();

/** Runs `work` when all that was given before has ended, well or not. */
export function queue<T>(work: () => Promise<T>): Promise<T> {
  const mine = last.then(work, work);
  last = mine.catch(() => undefined);
  return mine;
}
