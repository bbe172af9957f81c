-- What Agents declare about effects: which write an undo takes back, and the tools that a run was shown.
-- pawl:breaking=false

-- The write that a compensation undoes. At most one is under way or done for each.
alter table commitment_effects add column compensates uuid references commitment_effects;
create unique index effects_one_compensation on commitment_effects (compensates)
  where compensates is not null and state <> 'failed';

-- Tools of servers elsewhere as they were when a run began: it uses them to its end, whatever they say by then.
create table run_toolsets (
  run_id uuid primary key references runs,
  tools jsonb not null,
  pinned_at timestamptz not null
);
