// The demo as `make run` starts it, on a free port. It is stopped with whoever asked for it.

import { start } from './lab.mjs';

/** Starts it; `url`, `lines` and `stop()` in the answer. */
export async function demo(args = []) {
  const process = start(['demo', '--listen', '127.0.0.1:0', ...args], (line) => /^muster demo on (\S+)/.exec(line)?.[1]);
  const url = await process.ready;
  const get = async (path) => (await fetch(url + path)).json();
  return { url, get, stop: process.stop };
}
