-- A write that crossed and was given up before its first byte: its call may cross anew, as an effect of its own.
-- pawl:breaking=false

-- Its own sender's word: no byte left, because its time to be sent was over or its worker had to let go of the run.
alter table commitment_effects add column unsent boolean not null default false check (not unsent or state = 'failed');

-- One effect of a call and part that may have left; those that never did stand beside it.
alter table commitment_effects drop constraint commitment_effects_call_id_part_key;
create unique index effects_one_of_call on commitment_effects (call_id, part) where not unsent;
