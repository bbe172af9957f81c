-- A conversation that keeps going: what a mailbox needs to know to fold, amend, restart, queue or stop.
-- pawl:breaking=false

alter table conversations add column max_count int not null default 20 check (max_count > 0); -- messages that one turn begins with, as the newest message's agent says

-- When the turn that a message opens may begin: not before `quiet_until` unless `wait_until` is over. `grants`: what its
-- actor may have done; messages of different ones are never one turn. `about`: the message that an edit or a delete is of.
-- `reconciles`: the request whose effects it comes too late for; the turn that takes it in puts them right.
alter table message_events add column quiet_until timestamptz;
alter table message_events add column wait_until timestamptz;
alter table message_events add column grants text not null default '';
alter table message_events add column bot boolean not null default false;
alter table message_events add column about uuid references message_events;
alter table message_events add column reconciles uuid references logical_requests;
alter table message_events add column asked_until timestamptz; -- somebody has asked a model what it means, and waits till then
create index message_about on message_events (about) where about is not null;

-- Copies on the locked row of what decides about newer input (design rule: guards read only locked rows).
alter table runs add column trigger_count int not null default 1;
alter table runs add column window_until timestamptz;   -- of a queued run: the latest that it waits for more
alter table runs add column requester uuid references actors; -- of its request
alter table runs add column addressed uuid references actors; -- author of the newest message that it has taken in
alter table runs add column grants text not null default '';
alter table runs add column interruptions int not null default 0; -- of its request: restarts and replies refused as stale
alter table runs add column deadline_at timestamptz;              -- of its request: from then on nothing is taken in
alter table runs add column parked_at timestamptz;                -- waits for a person since then
alter table runs add column unblocked_by uuid references actors;  -- whose answer it went on with
alter table runs add column inherits uuid[] not null default '{}'; -- the runs whose steps are its own, oldest first
update runs r set requester = q.requester, addressed = q.requester from logical_requests q where q.id = r.request_id and r.live;
update runs r set trigger_count = (select count(*) from run_triggers t where t.run_id = r.id) where r.live;

alter table interrupts add column source text not null default 'policy'; -- policy, stop_word, model, edit, delete: who said so
alter table tool_calls drop constraint tool_calls_gate_check;
alter table tool_calls add constraint tool_calls_gate_check
  check (gate in ('none', 'open', 'approved', 'rejected', 'expired', 'withdrawn')) not valid;
alter table tool_calls validate constraint tool_calls_gate_check;
alter table approvals drop constraint approvals_state_check;
alter table approvals add constraint approvals_state_check
  check (state in ('open', 'approved', 'rejected', 'expired', 'withdrawn')) not valid;
alter table approvals validate constraint approvals_state_check;
