-- The ledger: conversations, runs, steps, calls, effects. Invariants I1..I10 are listed in docs/invariants.md and
-- cited here where a constraint carries them.
-- pawl:breaking=false

-- Time in decisions is database time; tests move it with `set pawl.skew = '5 seconds'`.
create function pawl_now() returns timestamptz language sql volatile parallel safe as
  $$ select clock_timestamp() + coalesce(nullif(current_setting('pawl.skew', true), ''), '0')::interval $$;

-- Which cluster this ledger belongs to. A process that finds another cluster's UID refuses to start.
create table installations (
  one boolean primary key default true check (one),
  kube_system_uid text not null,
  born_at timestamptz not null, -- the API server's clock, whole seconds, so that it compares with creationTimestamp
  epoch bigint not null default 1 check (epoch > 0)
);

create table agents (
  id uuid primary key,
  namespace_uid text not null,
  namespace text not null,
  name text not null,
  generation bigint not null check (generation > 0), -- ours, not the object's: a re-created Agent counts on
  suspended boolean not null default false,
  refs_generation bigint, -- the generation whose references were tried last
  refs_reason text,       -- null while refs_generation = generation: all found
  refs_message text,
  refs_checked_at timestamptz,
  unique (namespace_uid, name)
);

create table agent_generations (
  agent_id uuid not null references agents,
  generation bigint not null,
  spec jsonb not null,
  spec_hash text not null,
  created_at timestamptz not null,
  primary key (agent_id, generation)
);
alter table agents add foreign key (id, generation) references agent_generations (agent_id, generation)
  deferrable initially deferred;

create table actors (
  id uuid primary key,
  connector text not null,
  ext_id text not null,
  display text,
  unique (connector, ext_id)
);

-- The row is the mutex of its mailbox. live_run and mail_version are facts copied here so that a guard that waited
-- for this row decides on what is true now (design rule: guards read only locked rows).
create table conversations (
  id uuid primary key,
  agent_id uuid not null references agents,
  connector text not null,
  ext_key text not null,
  head_seq bigint not null default 0,
  mail_version bigint not null default 0, -- raised by every statement that changes a message of this conversation
  live_run uuid,
  last_version bigint not null default 0, -- of the newest run that ended here; the next one counts on from it
  title text,
  bot_turns int not null default 0,
  created_at timestamptz not null,
  unique (agent_id, connector, ext_key)
) with (fillfactor = 70);

-- What somebody asked. Acks, progress, the interruption count, the deadline and the budget hang here, never on a run.
create table logical_requests (
  id uuid primary key,
  conversation_id uuid not null references conversations,
  requester uuid not null references actors,
  continues uuid references logical_requests,
  reconciles uuid references logical_requests,
  interruptions int not null default 0,
  deadline_at timestamptz,
  last_progress_at timestamptz,
  progress_seq int not null default 0,
  opened_at timestamptz not null
);

create table runs (
  id uuid primary key,
  root_id uuid not null references runs,
  conversation_id uuid references conversations,
  request_id uuid not null references logical_requests,
  journal_scope uuid not null, -- the first root run of a chain of supersession or consent
  node_attempt_id uuid,
  agent_id uuid not null,
  agent_generation bigint not null,
  shape text not null default 'loop' check (shape in ('loop', 'graph')),
  status text not null check (status in ('queued', 'running', 'awaiting_tool', 'awaiting_input',
                                         'succeeded', 'failed', 'cancelled', 'budget_exhausted')),
  live boolean not null,
  reason text,
  message text check (length(message) <= 1024),
  lease_token bigint not null default 0,
  lease_owner text,
  lease_until timestamptz,
  due_at timestamptz,
  min_code int not null default 1,
  next_ordinal int not null default 1,
  last_nonce uuid,
  attempts int not null default 0, -- releases since the last committed response (a model that failed, a missing Secret)
  amend_seq bigint not null default 0,
  hold_seq bigint not null default 0,
  hold_until timestamptz,
  stop_requested_at timestamptz,
  closed_to_interrupts boolean not null default false,
  committed_at timestamptz,
  committed_by uuid,
  committed_step int,
  reply_at timestamptz,
  superseded_by uuid references runs,
  inherits_run uuid references runs,
  inherits_through int,
  slice jsonb not null default '{}', -- ceilings of this run; absent = the agent's
  model_calls int not null default 0,
  tool_calls int not null default 0,
  input_tokens bigint not null default 0,
  output_tokens bigint not null default 0,
  version bigint not null,
  queued_at timestamptz not null,
  started_at timestamptz,
  ended_at timestamptz,
  changed_at timestamptz not null,
  foreign key (agent_id, agent_generation) references agent_generations (agent_id, generation),
  check (live = (status not in ('succeeded', 'failed', 'cancelled', 'budget_exhausted'))),
  check ((root_id = id) = (conversation_id is not null)),
  check (live or (lease_owner is null and lease_until is null and due_at is null)), -- I7
  check (not live or ((lease_until is null) <> (due_at is null))),                  -- I7
  check ((lease_owner is null) = (lease_until is null)),
  check (status not in ('queued', 'awaiting_input') or lease_owner is null),
  check ((committed_at is null) = (committed_by is null)),                          -- I3
  check (reply_at is null or committed_at is not null),                             -- I3
  check (superseded_by is null or (status = 'cancelled' and committed_at is null)),
  check ((inherits_run is null) = (inherits_through is null)),
  check (live = (ended_at is null))
) with (fillfactor = 70);
create unique index runs_one_live on runs (conversation_id) where live;              -- I1
create index runs_due on runs (due_at) where live and due_at is not null;
create index runs_leased on runs (lease_owner) where live and lease_owner is not null;
create index runs_children on runs (root_id) where live;
create index runs_conversation on runs (conversation_id, queued_at);
create index runs_ended on runs (ended_at) where not live;
create unique index runs_superseded on runs (superseded_by) where superseded_by is not null;

create table message_events (
  id uuid primary key,
  conversation_id uuid not null references conversations,
  seq bigint not null,
  kind text not null check (kind in ('message', 'edit', 'delete', 'decision', 'stop')),
  ext_id text not null,
  ext_rev text not null default '',
  order_key text not null, -- the sender's time; renders inside one turn, decides nothing
  actor_id uuid not null references actors,
  addressed boolean not null default true,
  body text,
  state text not null check (state in ('observed', 'undecided', 'pending', 'in_turn', 'accounted', 'applied', 'withdrawn')),
  run_id uuid references runs,
  slice jsonb not null default '{}',
  received_at timestamptz not null,
  unique (conversation_id, seq),
  unique (conversation_id, kind, ext_id, ext_rev),
  check ((state in ('in_turn', 'accounted')) = (run_id is not null)) -- I2
);
create index message_open on message_events (conversation_id, seq) where state in ('undecided', 'pending');
create index message_in_turn on message_events (run_id) where state = 'in_turn';

-- An applied Run is a message once, whatever conversation or agent it names the second time.
create table run_keys (
  namespace_uid text not null,
  key text not null,
  spec_hash text not null,
  event_id uuid not null references message_events deferrable initially deferred,
  object_uid text not null,
  object_name text not null,
  primary key (namespace_uid, key)
);
create index run_keys_event on run_keys (event_id);
create index run_keys_object on run_keys (object_uid);

-- History of what a run took in; the truth of a message's state is on the message.
create table run_triggers (
  run_id uuid not null references runs,
  event_id uuid not null references message_events,
  role text not null check (role in ('trigger', 'amend', 'answer', 'inherited')),
  delivered_ordinal int, -- the first step whose request contained it; null = the model has not seen it
  primary key (run_id, event_id)
);
create index run_triggers_event on run_triggers (event_id);

-- Append only.
create table run_steps (
  run_id uuid not null references runs,
  ordinal int not null,
  lease_token bigint not null,
  nonce uuid not null,
  seen_seq bigint not null, -- the newest message that the request contained
  request jsonb not null,   -- hash, model, parameters, tool-set hash, builder version
  response jsonb not null,
  usage jsonb,
  replayability text not null check (replayability in ('pure', 'effectful')),
  committed_at timestamptz not null,
  primary key (run_id, ordinal)
);

create table tool_calls (
  id uuid primary key,
  run_id uuid not null,
  ordinal int not null,
  idx int not null,
  provider_id text,
  tool text not null,
  class text not null check (class in ('pure', 'internal_durable', 'coarse', 'effectful', 'reply')),
  kind text not null,
  args jsonb not null,
  args_hash text not null,
  target text,
  gate text not null default 'none' check (gate in ('none', 'open', 'approved', 'rejected', 'expired')),
  outcome text check (outcome in ('real', 'rejected', 'skipped', 'cancelled', 'unknown', 'withheld')),
  result text,
  closed_at timestamptz,
  unique (run_id, ordinal, idx),
  foreign key (run_id, ordinal) references run_steps,
  check ((outcome is null) = (closed_at is null)),
  check ((outcome is null) = (result is null)),
  check (class <> 'effectful' or target is not null or outcome is not distinct from 'rejected'),
  check (outcome is distinct from 'withheld' or class = 'reply')
);
create index tool_calls_open on tool_calls (run_id) where outcome is null;

-- The effect journal. The id is the idempotency key (I5).
create table commitment_effects (
  id uuid primary key,
  call_id uuid not null references tool_calls,
  part int not null default 0,
  run_id uuid not null references runs,
  root_id uuid not null references runs,
  request_id uuid not null references logical_requests,
  journal_scope uuid not null,
  node_key text not null default '',
  kind text not null check (kind in ('tool.effect', 'tool.workspace', 'tool.browser', 'egress.mutation', 'compensation', 'reply')),
  target text not null,
  args_hash text not null,
  repeat int not null default 0,
  keyed boolean not null default false, -- the Agent says that the receiver honours the key
  state text not null check (state in ('dispatched', 'confirmed', 'failed', 'unknown')),
  attempt int not null default 1 check (attempt > 0),
  nonce uuid not null,
  lease_token bigint,
  dispatched_at timestamptz not null,
  send_by timestamptz not null,
  settle_at timestamptz,
  settled_at timestamptz,
  prior jsonb,
  post jsonb,
  receipt jsonb,
  observation text, -- what the model reads of it
  resolved_by text,
  unique (call_id, part),
  check ((state = 'confirmed') = (receipt is not null)),
  check (state <> 'dispatched' or settle_at is not null),
  check (send_by < settle_at),
  check ((state = 'dispatched') = (settled_at is null))
);
create unique index effects_one_open on commitment_effects (journal_scope, target)
  where state in ('dispatched', 'unknown') and kind in ('tool.effect', 'compensation', 'reply');
create unique index effects_same_call on commitment_effects (journal_scope, node_key, args_hash, repeat)
  where state <> 'failed' and kind in ('tool.effect', 'compensation');
create unique index effects_one_reply on commitment_effects (request_id, part) where kind = 'reply'; -- I8
create index effects_run on commitment_effects (run_id);
create index effects_settle on commitment_effects (settle_at) where state in ('dispatched', 'unknown');

-- Every decision about a message that met a run: what was asked, what was done, why.
create table interrupts (
  event_id uuid primary key references message_events,
  run_id uuid references runs,
  relation text not null check (relation in ('refines', 'independent', 'cancels', 'none')),
  asked text not null,
  done text not null,
  reason text not null,
  at timestamptz not null
);
create index interrupts_run on interrupts (run_id);

-- Singletons only (leader, janitors); a run's lease lives on the run.
create table leases (
  name text primary key,
  token bigint not null,
  owner text not null,
  until timestamptz not null
);
