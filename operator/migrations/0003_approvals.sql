-- Approvals: calls that run only after a person has said so, and every decision that anybody made about one (I5).
-- pawl:breaking=false

-- One row per gated call, written when its run begins to wait. `id` is the request that people name. What a decision
-- is judged by is copied here, so that its guard finds it on a row that it locks.
create table approvals (
  id uuid primary key,
  call_id uuid not null unique references tool_calls,
  run_id uuid not null references runs,
  root_id uuid not null references runs,
  conversation_id uuid not null references conversations,
  hash text not null,      -- SHA-256 of {run, call, tool, arguments}: what is approved is this call and no other
  args_hash text not null, -- the call's own; the effect's must be the same
  tool text not null,
  target text,
  approvers jsonb,         -- {users, groups}; null = whoever may say so in the cluster
  requester_may_approve boolean not null,
  requested_at timestamptz not null,
  expires_at timestamptz not null,
  state text not null default 'open' check (state in ('open', 'approved', 'rejected', 'expired')),
  decision text,           -- the UID of the Decision that settled it
  decided_by text,
  decided_at timestamptz,
  reason text,
  check (requested_at < expires_at),
  check ((state = 'open') = (decided_at is null)),
  check ((state in ('approved', 'rejected')) = (decided_by is not null)),
  check ((decided_by is null) = (decision is null))
);
create index approvals_run on approvals (run_id);

-- Also the late and the refused ones; a Decision that is applied twice is here once.
create table approval_decisions (
  decision text primary key,
  approval_id uuid not null references approvals,
  actor text not null,
  asked text not null check (asked in ('approve', 'reject')),
  done text not null check (done in ('approved', 'rejected', 'late', 'refused')),
  why text check ((done = 'refused') = (why is not null)),
  reason text,
  at timestamptz not null
);
create index approval_decisions_approval on approval_decisions (approval_id);

-- A person's word about a change may come long after its run ended; the mirror follows it.
create index effects_resolved on commitment_effects (settled_at) where resolved_by is not null;
