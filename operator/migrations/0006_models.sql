-- What was asked of models beside a turn's own steps, what each step offered as tools, and how long an endpoint wants
-- to be left alone.
-- pawl:breaking=false

-- Typed questions to a small model (consent, sensitivity): asked, answered, decided upon. Append only.
create table classifications (
  id uuid primary key,
  run_id uuid references runs, -- null: about nothing that runs
  agent_id uuid not null references agents,
  question text not null,
  input_hash text not null,
  input text not null check (length(input) <= 4096), -- bounded; the hash is of all of it
  answer jsonb,                -- null: unsure
  reason text not null,        -- answered, or why nobody could say
  model text,                  -- null: none is named anywhere
  usage jsonb,
  ms int not null,
  at timestamptz not null
);
create index classifications_run on classifications (run_id);

-- The tools of a request, once per distinct list: run_steps.request ->> 'tools' names it. Schemas change with the code,
-- requests do not.
create table toolsets (
  hash text primary key,
  tools jsonb not null,
  at timestamptz not null
);

-- One row per credential that an endpoint refused for now: every worker waits.
create table rate_gates (
  credential text primary key, -- a hash of address and key
  not_before timestamptz not null
);
