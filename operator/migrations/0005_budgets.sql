-- What a request used beyond calls and tokens: time at work, money, and model calls whose answer nobody got.
-- And what the claim needs to keep the ceilings of runs at work.
-- pawl:breaking=false

alter table runs add column worked_ms bigint not null default 0; -- under leases that are over
alter table runs add column leased_at timestamptz;               -- of the lease that is held
-- The next model call, written down before it is made: 1 from the commit before it until the commit of its response.
alter table runs add column reserved_calls int not null default 0 check (reserved_calls in (0, 1));
alter table runs add column charged_calls int not null default 0 check (charged_calls >= 0); -- made, and no response was committed
alter table runs add column spent_micros bigint not null default 0; -- millionths of a US dollar, with estimates: what the limit counts
-- The exact sum of the steps. Null: not known, because a step had no price or no usage. Runs from before stay null.
alter table runs add column cost_micros bigint;
alter table runs alter column cost_micros set default 0;
update runs set cost_micros = 0 where live and next_ordinal = 1;
alter table run_steps add column cost_micros bigint;

-- Raised by every claim of a new lease: a claim that waited for this row knows that its count of leases is old.
alter table agents add column claims bigint not null default 0;
insert into leases (name, token, owner, until) values ('admission', 0, '', pawl_now());

-- None of their columns changes while a lease is held, so that updates of a run at work stay on their page.
create index runs_begun on runs (due_at) where live and due_at is not null and started_at is not null;
create index runs_waiting on runs (agent_id, due_at) where live and due_at is not null and started_at is null;
