-- Questions that a turn asks a person and waits for, and what is said outside once per request (I8).
-- pawl:breaking=false

-- One row per question, written when its run begins to wait. `id` is the request that people name.
create table questions (
  id uuid primary key,
  call_id uuid not null unique references tool_calls,
  run_id uuid not null references runs,
  conversation_id uuid not null references conversations,
  request_id uuid not null references logical_requests,
  text text not null,
  options jsonb not null default '[]',
  asked_at timestamptz not null,
  expires_at timestamptz not null,
  state text not null default 'open' check (state in ('open', 'answered', 'expired', 'withdrawn')),
  answered_by uuid references actors,
  answer_event uuid references message_events,
  closed_at timestamptz,
  check (asked_at < expires_at),
  check ((state = 'open') = (closed_at is null)),
  check ((state = 'answered') = (answered_by is not null)),
  check ((answered_by is null) = (answer_event is null))
);
create index questions_run on questions (run_id);
create unique index questions_one_open on questions (run_id) where state = 'open';

-- Decisions that answer, also the late ones; one that is applied twice is here once.
create table question_decisions (
  decision text primary key,
  question_id uuid not null references questions,
  actor text not null,
  done text not null check (done in ('answered', 'late')),
  over text check ((done = 'late') = (over is not null)),
  text text not null,
  at timestamptz not null
);
create index question_decisions_question on question_decisions (question_id);

-- What a request says outside besides its answer. Whoever reserves the row says it; it is never said twice. One that is
-- still reserved after `due_at` was perhaps said and perhaps not.
create table emissions (
  request_id uuid not null references logical_requests,
  kind text not null check (kind in ('ack', 'question', 'progress', 'notice')),
  sequence int not null check (sequence >= 0),
  run_id uuid not null references runs,
  text text not null,
  state text not null default 'reserved' check (state in ('reserved', 'landed', 'failed', 'unknown')),
  nonce uuid not null,
  reserved_at timestamptz not null,
  due_at timestamptz not null,
  settled_at timestamptz,
  receipt jsonb,
  primary key (request_id, kind, sequence),
  check ((state = 'reserved') = (settled_at is null))
);
create index emissions_run on emissions (run_id);
