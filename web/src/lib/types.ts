// The parts of the public API that the page reads. The reference is /docs/ (OpenAPI).

export type Condition = { type: string; status: string; reason: string; message: string; lastTransitionTime?: string; last_transition_time?: string };

export type Pool = {
  id: string;
  name: string;
  cluster_id: string;
  generation: number;
  resource_version: string;
  spec: {
    platform?: { type?: string; baremetal?: { pool?: string } };
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
    bmcBlocked?: { cause: string; message: string; since: string; seenKey?: string };
  };
  op?: { id: string; kind: string; started: string; reason: string };
  metrics?: {
    at?: string;
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

/** The parts of `explain node` that pages read. */
export type NodeExplained = { headline: string; answer?: { pods: string[]; moves: { pod: string; to: string }[]; usage: { resource: string; requested: string; allocatable: string; percent: number }[]; blockers: { code: string; text: string }[] } };

export type Rack = { name: string; spec: { units?: number; wattCap?: number; startLimit?: number; zone?: string } };

export type HostEvent = { at: string; source: 'lifecycle' | 'inventory'; by: string; what: string; message: string; from?: string; to?: string; count: number; operation?: string; deadline?: string };

/** How long phases take on the hosts of a pool. */
export type PhaseDurations = { pool: string; hosts: number; phases: { phase: string; count: number; median_millis: number }[] };

export type Operation = {
  id: string;
  kind: string;
  subject: string;
  link: string;
  state: string;
  message: string;
  reason?: string;
  started_at: string;
  deadline?: string | null;
};

export type Attention = { kind: string; subject: string; line: string; since?: string | null; link: string; command?: string; pods?: number };

export type Saved = { milliwatt_hours: number; since?: string | null; micros?: number | null; currency?: string | null; method: string };

export type Overview = {
  at: string;
  revision: string;
  freeze?: { mode: string; reason?: string };
  pending: { pods: number | null; hopeless: number; unseen_clusters: number };
  hosts: { total: number; on: number; held: number; by_state: Record<string, number> };
  milliwatts: number;
  unmetered: number;
  declared: number;
  saved_today: Saved;
  attention_total: number;
  attention: Attention[];
  operations_total: number;
  operations: Operation[];
};

export type Series = { name: string; points: [number, number | null][] };
export type History = { from: string; to: string; series: Series[]; marks: { at: string; id: string; text: string }[] };

export type Gap = { pool: string; code: string; observed: string; required: string; margin: string; text: string };
export type Fix = { object: string; field: string; text: string; patch: unknown; kind: string; helps: number; target?: string; command: string };
export type PendingGroup = {
  cluster_id: string;
  cluster_name: string;
  headline: string;
  text: string;
  code: string;
  object: string;
  field: string;
  helped: boolean;
  count: number;
  example: string;
  oldest: string;
  pods: { namespace: string; name: string; since: string }[];
  requests: Record<string, string>;
  pools: Gap[];
  next: string[];
  fixes: Fix[];
};
export type Pending = { groups: PendingGroup[]; total: number; unseen_clusters: { cluster_id: string; cluster_name: string }[] };

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
  told?: { about: string; count: number; code: string; headline: string }[];
  findings?: string[];
  outcome: { state: string; at: string; text: string; effects?: { what: string; object: string; text: string }[] };
  text?: string;
};

export type DecisionHeading = { id: string; number: number; at: string; headline: string; outcome: string };
export type DecisionChange = { subject: string; pool?: string; name: string; from: string; to: string; details?: string[]; from_because?: string; to_because?: string; rule: boolean };
export type Comparison = { from: DecisionHeading; to: DecisionHeading; same: boolean; summary: string; because?: string; inputs: DecisionChange[]; outcome: DecisionChange[]; notes?: string[]; text: string };

/** What some machines draw, used and saved; machines in no rack have no name. */
export type EnergyShare = { name: string | null; hosts: number; milliwatts: number; all_on_milliwatts: number; used_milliwatt_hours: number; saved_milliwatt_hours: number; used_micros?: number | null; saved_micros?: number | null; unmetered: number; undeclared: number };

export type EnergyReport = {
  at: string;
  milliwatts: number;
  all_on_milliwatts: number;
  unmetered: number;
  declared: number;
  used_milliwatt_hours: number;
  saved_milliwatt_hours: number;
  used_micros?: number | null;
  saved_micros?: number | null;
  price_micros?: number | null;
  currency?: string | null;
  saved_today: Saved;
  method: string;
  pools: EnergyShare[];
  racks: EnergyShare[];
  cycles_total: number;
  cycles: { host: string; pool: string; count: number; budget: number }[];
  cycle_budget: number;
};

export type Call = { at: string; driver: string; call: string; target: string; result: string; ok: boolean; millis: number; count: number; last_at?: string };

export type WhatIfNode = { name: string; pool: string; change: 'stays' | 'new' | 'goes'; cpu_percent: number; memory_percent: number; pods: number };
export type WhatIfSide = { machines: number; micros_per_hour: number; milliwatts: number; running_pods: number; waiting_pods: number; cpu_percent: number; memory_percent: number; nodes: WhatIfNode[]; more_nodes: number };
export type WhatIf = {
  question: string;
  summary: string;
  at: string;
  before: WhatIfSide;
  after: WhatIfSide;
  new_nodes: { pool: string; template: string; place: string; count: number; pods: number }[];
  removals: { node: string; pool: string; moves: number }[];
  unplaced: { pods: number; example: string; code: string; headline: string; fix?: { text: string } }[];
  warnings: string[];
  notes: string[];
  findings: string[];
  millis: number;
  currency?: string | null;
};

export type Me = {
  name: string;
  mode: string;
  roles: string[];
  project?: string | null;
  projects: string[];
  everywhere: boolean;
  rights: Record<string, { allowed: boolean; needs: string[] }>;
  version: string;
};
