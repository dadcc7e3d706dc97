// Who is signed in and what they may do. What a role may not do is shown disabled, with what is missing.

import { get, Problem } from './api.ts';
import type { Me } from './types.ts';

class Who {
  me = $state.raw<Me | undefined>(undefined);
  problem = $state.raw<Problem | undefined>(undefined);
  /** The dialog in which people sign in is open. */
  asking = $state(false);
  /** Whose token has run out while the page was open. */
  lost = $state<string | undefined>(undefined);

  async ask() {
    try {
      this.me = await get<Me>('/api/v1/me');
      this.problem = undefined;
    } catch (cause) {
      this.me = undefined;
      this.problem = cause instanceof Problem ? cause : new Problem(0, 'ERROR', String(cause));
    }
  }

  /** Why it cannot be done, or nothing when it can. The server has the last word. */
  lacks(right: string): string | undefined {
    const held = this.me?.rights[right];
    if (!held || held.allowed) return undefined;
    return held.needs.length ? `Takes the role ${held.needs.join(' or ')}` : 'Nobody may do this here';
  }
}

export const who = new Who();
