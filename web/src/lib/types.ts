// The parts of the public API that the page reads. The reference is /docs/ (OpenAPI).

export type Condition = { type: string; status: string; reason: string; message: string; lastTransitionTime?: string; last_transition_time?: string };

export type Pool = {
  id: string;
  name: string;
  cluster_id: string;
  generation: number;
  resource_version: string;
  spec: {
    platform?: { type?: string };
    nodeCount?: number;
    mode?: string;
    labels?: Record<string, string>;
    taints?: { key: string; value?: string; effect: string }[];
    autoscaling?: { enabled?: boolean; minNodes?: number; maxNodes?: number; triggers?: { name?: string; metricQuery: string; threshold: number; duration: string; scaleDirection: string }[] };
  };
  status?: {
    phase?: string;
    health?: string;
    desired_nodes?: number;
    current_nodes?: number;
    ready_nodes?: number;
    conditions?: Condition[];
  };
};

export type Cluster = { id: string; name: string; spec?: { mode?: string } };

export type HostState = 'off' | 'powering-on' | 'ready' | 'draining' | 'error';

export type Host = {
  name: string;
  resource_version?: string;
  spec: {
    pool: string;
    rack?: string;
    slot?: number;
    height?: number;
    macAddress?: string;
    mgmtAddress?: string;
    serial?: string;
    powerInterface: string;
    resources: Record<string, unknown>;
    labels?: Record<string, string>;
    admin?: 'normal' | 'maintenance' | 'disabled';
    hold?: { by?: string; reason?: string; until?: string };
    idleWatts?: number;
    maxWatts?: number;
  };
  status?: {
    state: HostState;
    stateSince: string;
    phase: string;
    phaseSince: string;
    deadline?: string;
    reason: string;
    powerState: 'on' | 'off' | 'unknown';
    kubernetesNode?: string;
    conditions?: Condition[];
    failures?: { at: string; reason: string; message: string }[];
    starts?: string[];
  };
  op?: { id: string; kind: string; started: string; reason: string };
  metrics?: {
    milliwatts?: Known<number>;
    millicelsius?: Known<number>;
    cpuPermille?: Known<number>;
    memoryPermille?: Known<number>;
    usedMilliwattHours?: number;
    savedMilliwattHours?: number;
  };
};

export type Known<T> = { value: T; at: string } | { why: string; since: string };
export const known = <T>(one: Known<T> | undefined): T | undefined => (one && 'value' in one ? one.value : undefined);

export type Rack = { name: string; spec: { units?: number; watts?: number; maxStarts?: number } };

export type HostEvent = { number: number; at: string; lastAt?: string; count: number; from: string; to: string; rule: string; message: string; operation?: string };

export type Operation = {
  id: string;
  kind: string;
  subject: string;
  state: string;
  message: string;
  started_at: string;
  deadline?: string;
};

export type Attention = { kind: string; subject: string; line: string; since?: string; link: string; command?: string; pods?: number };

export type Overview = {
  at: string;
  revision: string;
  freeze?: { mode: string; reason?: string };
  pending: { pods: number; hopeless: number };
  hosts: { total: number; on: number; by_state: Record<string, number> };
  milliwatts: number;
  unmetered: number;
  saved_today: { milliwatt_hours: number; micros?: number; currency?: string; method: string };
  attention: Attention[];
  operations: Operation[];
};

export type Series = { name: string; points: [number, number | null][] };
export type History = { from: string; to: string; step_seconds: number; series: Series[]; marks: { at: string; id: string; text: string }[] };

export type Gap = { pool: string; constraint: string; observed?: number; required?: number; unit?: string; text: string };
export type PendingGroup = {
  cause: string;
  code: string;
  pods: { namespace: string; name: string; since: string }[];
  count: number;
  oldest: string;
  requests: Record<string, string>;
  pools: Gap[];
  next: string;
  fix?: { text: string; helps: number; target: string; patch: unknown; command: string };
};

export type DecisionAction = { kind: 'wake' | 'ask' | 'remove'; pool: string; host?: string; node?: string; template?: string; advice?: boolean; because: string; pods?: string[]; pod_count?: number };

export type Decision = {
  id: string;
  cluster_name: string;
  number: number;
  at: string;
  headline: string;
  cause: { nudges: string[]; changes?: string[]; after?: string };
  new_nodes: number;
  removals: number;
  placed: number;
  unplaced: number;
  pools?: string[];
  actions?: DecisionAction[];
  more_actions?: number;
  told?: { subject?: string; line?: string; text?: string }[];
  findings?: string[];
  outcome: { state: string; message?: string; operations?: string[] };
};

export type EnergyReport = {
  at: string;
  milliwatts: number;
  all_on_milliwatts: number;
  used_milliwatt_hours: number;
  saved_milliwatt_hours: number;
  saved_micros?: number;
  currency?: string;
  method: string;
  pools: { name: string; milliwatts: number; used_milliwatt_hours: number; saved_milliwatt_hours: number; unmetered: number }[];
  cycles: { host: string; count: number }[];
  cycle_budget?: number;
};
