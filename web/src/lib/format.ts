// Numbers and times as people read them. Pure, tested.

export function duration(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86_400) {
    const minutes = Math.floor((s % 3600) / 60);
    return s < 36_000 && minutes ? `${Math.floor(s / 3600)} h ${minutes} min` : `${Math.floor(s / 3600)} h`;
  }
  return `${Math.floor(s / 86_400)} d`;
}

/** `2:10`, for time that runs against a deadline. */
export function clock(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds));
  const [h, m] = [Math.floor(s / 3600), Math.floor((s % 3600) / 60)];
  const two = (n: number) => String(n).padStart(2, '0');
  return h ? `${h}:${two(m)}:${two(s % 60)}` : `${m}:${two(s % 60)}`;
}

export const since = (time: string | undefined, now: number): string => (time ? duration((now - Date.parse(time)) / 1000) : '–');

export function bytes(value: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${short(value)} ${units[at]}`;
}

export function watts(milliwatts: number): string {
  const w = milliwatts / 1000;
  return Math.abs(w) >= 10_000 ? `${short(w / 1000)} kW` : `${Math.round(w).toLocaleString('en')} W`;
}

export function energy(wattHours: number): string {
  if (Math.abs(wattHours) >= 1_000_000) return `${short(wattHours / 1_000_000)} MWh`;
  return Math.abs(wattHours) >= 1000 ? `${short(wattHours / 1000)} kWh` : `${Math.round(wattHours)} Wh`;
}

/** Where nobody has said which currency prices are in. */
export const NO_CURRENCY = 'currency not set';

/**
 * Millionths of the currency that is configured: a code (`EUR`), a sign (`€`) or a word (`credits`). Less than a tenth is
 * told to the thousandth: machines cost that much an hour.
 */
export function money(micros: number, currency: string | null | undefined): string {
  const value = micros / 1e6;
  const digits = Math.abs(value) >= 0.0005 && Math.abs(value) < 0.1 ? 3 : 2;
  const style = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  const name = currency?.trim() ?? '';
  if (/^[A-Z]{3}$/.test(name)) return value.toLocaleString('en', { ...style, style: 'currency', currency: name, currencyDisplay: 'narrowSymbol' });
  const amount = value.toLocaleString('en', style);
  if (name === '') return `${amount} (${NO_CURRENCY})`;
  return /^\p{L}{2,}/u.test(name) ? `${amount} ${name}` : `${name}${amount}`;
}

/** At most three digits that mean something. */
export function short(value: number): string {
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toFixed(digits).replace(/(\.\d*?)0+$/, '$1').replace(/\.$/, '');
}

export const cores = (millis: number): string => (millis % 1000 === 0 ? String(millis / 1000) : short(millis / 1000));

/** A difference with its sign: `+180 W`, `−2`, `±0`. */
export const sign = (value: number, show: (value: number) => string): string => (value === 0 ? '±0' : value > 0 ? `+${show(value)}` : `−${show(-value)}`);

/** A Kubernetes quantity as people say it: `64000m` is 64, `524288Mi` is 512 GiB. What is none stays as it is. */
export function quantity(text: string): string {
  const found = /^(\d+(?:\.\d+)?)(m|Ki|Mi|Gi|Ti|Pi)?$/.exec(text);
  if (!found) return text;
  const value = Number(found[1]);
  if (found[2] === undefined) return text;
  if (found[2] === 'm') return cores(value);
  return bytes(value * 1024 ** (['Ki', 'Mi', 'Gi', 'Ti', 'Pi'].indexOf(found[2]) + 1));
}

export const plural = (count: number, one: string, many = `${one}s`): string => `${count.toLocaleString('en')} ${count === 1 ? one : many}`;

/** `32 cores, 128 GiB, 8 GPUs`: what a machine has, from its declared resources. */
export function shape(resources: Record<string, unknown>): string {
  const part = ([key, value]: [string, unknown]): string => {
    const text = quantity(String(typeof value === 'object' && value !== null ? JSON.stringify(value) : value));
    if (key === 'cpu') return `${text} ${text === '1' ? 'core' : 'cores'}`;
    if (key === 'memory') return text;
    return key === 'gpu' ? plural(Number(text), 'GPU') : `${text} ${key}`;
  };
  return Object.entries(resources).filter(([, value]) => value !== 0 && value !== '0').map(part).join(', ');
}

/** `14:02:10`, and the day when it is not today: `15 Nov 22:36:24`. */
export function moment(time: string, now: number): string {
  const [date, today] = [new Date(time), new Date(now)];
  const text = date.toLocaleTimeString('en-GB');
  if (today.toDateString() === date.toDateString()) return text;
  const year = today.getFullYear() === date.getFullYear() ? undefined : 'numeric';
  return `${date.toLocaleDateString('en-GB', { day: 'numeric', month: 'short', year })} ${text}`;
}

/** A text of the server with its times as the page tells them: `until 2026-11-17T08:26:32.988Z` is until 08:26:32, `1m1.934s` is 1m2s. */
export const readable = (text: string, now: number): string =>
  text
    .replace(/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/g, (time) => moment(time, now))
    .replace(/\b((?:\d+[hm])*)(\d+\.\d+)s\b/g, (whole, before: string, seconds: string) => (before || Number(seconds) >= 1 ? `${before}${Math.round(Number(seconds))}s` : whole));

/** What share of `required` there is, where both are numbers of one unit: `10.9 GiB` of `12 GiB`. */
export function share(observed: string, required: string): number | undefined {
  const read = (text: string) => /^(\d+(?:\.\d+)?)\s*(\D*)$/.exec(text.trim());
  const [has, needs] = [read(observed), read(required)];
  if (!has || !needs || has[2] !== needs[2] || Number(needs[1]) === 0) return undefined;
  return Number(has[1]) / Number(needs[1]);
}
