// The phases that a host went through, against the time that each had and the time that they take in its pool. Pure, tested.

import type { Host, HostEvent, PhaseDurations } from './types.ts';

/** `deadline`: until when it could take. `failed`: what it ended with, where it failed. `median`: milliseconds it takes in the pool. */
export type Bit = { phase: string; from: number; to: number; last: boolean; deadline?: number; failed?: string; median?: number };

/** Changes that are drawn. */
const MOST = 40;
/** A failure is written down in the turn that ends the phase. */
const NEAR = 1_500;

export function bits(events: HostEvent[], status: Host['status'] | undefined, durations: PhaseDurations | undefined, now: number): Bit[] {
  const medians = new Map(durations?.phases.map((one) => [one.phase, one.median_millis]));
  // What is remarked upon a change is not another one.
  const changes = events.filter((one) => one.to && one.from !== one.to && one.what !== 'remark').slice(-MOST);
  const failures = [...(status?.failures ?? [])];
  return changes.map((one, n) => {
    const next = changes[n + 1];
    const phase = one.to?.split('/').at(-1) ?? '';
    // What runs now may have been given another deadline since it began.
    const until = next ? one.deadline : (status?.deadline ?? one.deadline);
    // A failure ends one phase: that which it is first found at the end of.
    const found = next ? failures.findIndex((failure) => Math.abs(Date.parse(failure.at) - Date.parse(next.at)) < NEAR && next.at !== one.at) : -1;
    const failed = found < 0 ? undefined : failures.splice(found, 1)[0]?.message;
    return { phase, from: Date.parse(one.at), to: next ? Date.parse(next.at) : now, last: !next, deadline: until ? Date.parse(until) : undefined, failed, median: medians.get(phase) };
  });
}

/** Shorter ones are steps that a host passes, not something that it does. */
const PASSING = 1_000;

export const passing = (one: Bit): boolean => one.to - one.from < PASSING;

/** The phases with something to be held against, the newest first. */
export const timed = (all: Bit[]): Bit[] => all.filter((one) => (one.deadline !== undefined || one.median !== undefined) && (one.last || one.failed || !passing(one))).reverse();
