// The state language: one glyph, one colour role and one sentence for each state, on page, terminal and docs.

import { clock, since } from './format.ts';
import type { Decision, Host } from './types.ts';

export type Role = 'off' | 'accent' | 'ready' | 'draining' | 'error' | 'held' | 'unknown';

export type Said = { glyph: string; role: Role; word: string; text: string; progress?: number };

const GLYPH: Record<Role, string> = { off: '○', accent: '◔', ready: '●', draining: '◑', error: '▲', held: '‖', unknown: '?' };

const say = (role: Role, word: string, text: string, progress?: number): Said => ({ glyph: GLYPH[role], role, word, text, progress });

/** What went wrong, where it is written down: the last of its failures says more than where the last attempt ended. */
function failed(status: NonNullable<Host['status']>): string | undefined {
  const last = status.failures?.at(-1);
  if (!last?.message) return undefined;
  return (status.failures?.length ?? 0) > 1 ? `${last.message} (${status.failures?.length} times)` : last.message;
}

/** The colour role of a host alone: the same as [`host`] says, without its words. */
export function hostRole(one: Host): Role {
  const status = one.status;
  if (!status) return 'unknown';
  if (one.spec.admin === 'maintenance' || one.spec.admin === 'disabled' || one.spec.hold) return 'held';
  if (status.powerState === 'unknown' && status.state !== 'error') return 'unknown';
  switch (status.state) {
    case 'off':
      return 'off';
    case 'powering-on':
      return 'accent';
    case 'ready':
      return status.phase === 'serving' ? 'ready' : 'draining';
    default:
      return status.state;
  }
}

/** What one line can say about a host. */
export function host(one: Host, now: number): Said {
  const status = one.status;
  if (!status) return say('unknown', 'unknown', 'no status yet');
  if (one.spec.admin === 'maintenance' || one.spec.admin === 'disabled') return say('held', one.spec.admin, `${one.spec.admin} · ${since(status.phaseSince, now)}`);
  if (one.spec.hold) return say('held', 'held', `held by ${one.spec.hold.by || 'somebody'}${one.spec.hold.until ? ` · until ${new Date(one.spec.hold.until).toLocaleTimeString('en-GB', { timeStyle: 'short' })}` : ''}`);
  if (status.powerState === 'unknown' && status.state !== 'error') return say('unknown', 'unknown', `BMC silent · ${since(status.phaseSince, now)}`);
  const age = since(status.stateSince, now);
  switch (status.state) {
    case 'off':
      return say('off', 'off', `off · ${age}`);
    case 'powering-on': {
      const [from, to] = [Date.parse(status.stateSince), status.deadline ? Date.parse(status.deadline) : NaN];
      const spent = (now - from) / 1000;
      const total = (to - from) / 1000;
      const text = Number.isFinite(total) ? `${status.phase} · ${clock(spent)} of ${clock(total)}` : `${status.phase} · ${clock(spent)}`;
      return say('accent', 'booting', text, Number.isFinite(total) && total > 0 ? Math.min(1, spent / total) : undefined);
    }
    case 'ready':
      return status.phase === 'serving' ? say('ready', 'ready', `ready · ${age}`) : say('draining', status.phase, `${status.phase} · ${status.reason}`);
    case 'draining':
      return say('draining', 'draining', `${status.phase} · ${status.reason}`);
    case 'error':
      return say('error', status.phase, `${status.phase} · ${failed(status) ?? status.reason}`);
  }
}

/** Conditions that say that something is wrong, or unusual, when they are true. */
const ODD = new Set(['Quarantined', 'OffNotProved', 'BMCBlocked', 'BMCUnverified', 'BMCStuck', 'PowerReadingDisagrees', 'UnexpectedOff', 'UnexpectedOn', 'NodeLost', 'DrainBlocked', 'CannotForceOff', 'BootFailed', 'Overdue', 'Deleting', 'Surplus', 'Held', 'Maintenance', 'DryRun', 'Paused', 'GrowthPaused', 'Drifted', 'WakeUnproven', 'Unexpected']);
/** Conditions that only tell what is going on. */
const NEWS = new Set(['ScalingUp', 'ScalingDown', 'Booting', 'Draining']);

/** How a condition is shown: fine, going on, or in need of somebody. */
export function condition(type: string, status: string, reason = ''): Role {
  // A machine that is off because nobody needs it is as it should be.
  if (type === 'Ready' && status === 'False' && reason === 'Idle') return 'off';
  if (status === 'Unknown') return 'unknown';
  const on = status === 'True';
  if (NEWS.has(type)) return on ? 'accent' : 'off';
  if (ODD.has(type)) return on ? (type === 'Held' || type === 'Paused' || type === 'Maintenance' ? 'held' : 'draining') : 'off';
  return on ? 'ready' : 'draining';
}

export function pool(health: string | undefined): Role {
  switch (health) {
    case 'Healthy':
      return 'ready';
    case 'Degraded':
      return 'draining';
    case 'Unhealthy':
      return 'error';
    default:
      return 'unknown';
  }
}

/** How a decision is shown: refused or failed, only advised, taking machines down, or bringing them up. */
export function decided(one: Pick<Decision, 'findings' | 'outcome' | 'removals' | 'new_nodes'>): Role {
  if (one.findings?.length || one.outcome.state === 'failed' || one.outcome.state === 'refused') return 'error';
  if (one.outcome.state === 'advised' || one.outcome.state === 'void') return 'held';
  return one.removals ? 'draining' : one.new_nodes ? 'accent' : 'off';
}

const NUDGES: Record<string, string> = { timer: 'time passed', cluster: 'the cluster changed', inventory: 'servers changed', registry: 'a pool or cluster was changed', leader: 'another process leads', start: 'the server started', void: 'the decision before could not be carried out' };

/** Why the planner looked, where nothing that it names had changed. */
export const nudged = (nudges: string[]): string => [...new Set(nudges)].map((one) => NUDGES[one] ?? one).join(', ') || 'the planner looked again';

/** Worst first. */
export const RANK: Record<Role, number> = { error: 0, unknown: 1, draining: 2, accent: 3, held: 4, ready: 5, off: 6 };
export const glyph = (role: Role): string => GLYPH[role];
