-- What the end of a turn needs to know of the policy under which a message was taken in; and what is read of a message
-- that was edited.
-- pawl:breaking=false

alter table message_events add column mid_turn text not null default 'enqueue'
  check (mid_turn in ('enqueue', 'amend', 'preempt')); -- what its agent asks for, should it meet a turn at work
alter table message_events add column deadline_ms int8 not null default 600000
  check (deadline_ms >= 0); -- of the request that it may open: how long that takes anything in
alter table message_events add column shown text; -- its newest words, in place of `body`, which stays as it was said
