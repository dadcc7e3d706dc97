// Calls to our own origin. Every failure becomes a Problem that can be shown to a person.

import { time } from './time.ts';

export class Problem extends Error {
  readonly status: number;
  readonly code: string;
  readonly requestId: string | undefined;
  readonly details: string[];

  constructor(status: number, code: string, message: string, requestId?: string, details: string[] = []) {
    super(message);
    this.status = status;
    this.code = code;
    this.requestId = requestId;
    this.details = details;
  }

  get forbidden() {
    return this.status === 403;
  }
}

export type Answer<T> = { body: T; etag: string | null; warnings: string[] };

const SECRET = 'muster.token';

/** Kept for the tab only: closing it signs out. */
export const token = {
  get: () => sessionStorage.getItem(SECRET),
  set: (value: string) => sessionStorage.setItem(SECRET, value),
  clear: () => sessionStorage.removeItem(SECRET),
};

export function headers(extra: Record<string, string> = {}): Record<string, string> {
  const bearer = token.get();
  const user = sessionStorage.getItem('muster.user');
  return {
    Accept: 'application/json',
    ...(bearer ? { Authorization: `Bearer ${bearer}` } : {}),
    ...(user ? { 'X-User-Email': user } : {}),
    ...extra,
  };
}

/** Names whoever is signed in without saying who: tabs of the same person have the same. */
export function identity(): string {
  let sum = 2166136261;
  for (const letter of `${token.get() ?? ''}\n${sessionStorage.getItem('muster.user') ?? ''}`) sum = Math.imul(sum ^ (letter.codePointAt(0) ?? 0), 16777619);
  return (sum >>> 0).toString(36);
}

let refused = () => {};
/** Tells when the server no longer knows who is asking: a token that has run out, or was taken back. */
export const whenRefused = (tell: () => void) => (refused = tell);

type Options = { method?: string; body?: unknown; ifMatch?: string | null; key?: string; signal?: AbortSignal; merge?: boolean };

export async function call<T>(path: string, options: Options = {}): Promise<Answer<T>> {
  const sent: Record<string, string> = {};
  if (options.body !== undefined) sent['Content-Type'] = options.merge ? 'application/merge-patch+json' : 'application/json';
  if (options.ifMatch) sent['If-Match'] = options.ifMatch;
  if (options.key) sent['Idempotency-Key'] = options.key;
  let response: Response;
  try {
    response = await fetch(path, {
      method: options.method ?? 'GET',
      headers: headers(sent),
      body: options.body === undefined ? undefined : JSON.stringify(options.body),
      signal: options.signal,
      cache: 'no-store',
    });
  } catch (cause) {
    if (options.signal?.aborted) throw cause;
    throw new Problem(0, 'UNREACHABLE', 'The server does not answer. What is shown is the last that was known.');
  }
  time.note(response.headers.get('X-Muster-Time'));
  const text = await response.text();
  if (response.status === 401) refused();
  if (!response.ok) throw problem(response, text);
  let body: T;
  try {
    body = (text ? JSON.parse(text) : undefined) as T;
  } catch {
    throw new Problem(response.status, 'BAD_ANSWER', 'The server answered with something that is not JSON.', id(response));
  }
  const warning = response.headers.get('Warning');
  return { body, etag: response.headers.get('ETag'), warnings: warning ? [warning] : [] };
}

export const get = async <T>(path: string, signal?: AbortSignal): Promise<T> => (await call<T>(path, { signal })).body;

const id = (response: Response) => response.headers.get('X-Request-Id') ?? undefined;

function problem(response: Response, text: string): Problem {
  try {
    const body = JSON.parse(text) as { error?: { code?: string; message?: string; details?: string; fields?: unknown[] } };
    const error = body.error;
    if (error?.message) {
      const details = error.fields?.length ? error.fields.map(line) : error.details ? [error.details] : [];
      return new Problem(response.status, error.code ?? 'ERROR', error.message, id(response), details);
    }
  } catch {
    // Not ours: a proxy's page, for instance. Its text is not shown.
  }
  return new Problem(response.status, 'ERROR', `The server answered ${response.status} without a reason.`, id(response));
}

/** `add.count: is out of range, found 0, allowed: 1 to 10000`, with whatever of it the server said. */
export function line(detail: unknown): string {
  if (typeof detail !== 'object' || detail === null || !('path' in detail)) return String(detail);
  const { path, problem = '', found, allowed, hint } = detail as { path: string; problem?: string; found?: unknown; allowed?: unknown; hint?: unknown };
  const said = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value));
  const parts = [found === undefined ? '' : `, found ${said(found)}`, allowed === undefined ? '' : `, allowed: ${said(allowed)}`, hint === undefined ? '' : `; ${said(hint)}`];
  return `${path ? `${path}: ` : ''}${problem}${parts.join('')}`;
}

/** One per intended action: repeating a click repeats the key, and the server does it once. */
export const newKey = () => crypto.randomUUID();
