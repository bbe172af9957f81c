-- Provenance and memory. Where a result came from, who may be shown it, and what was built on it. None of these rows
-- points at a run by foreign key: they outlive it.
-- pawl:breaking=false

-- One row per result from outside, written with it. What is not declared may be shown in its conversation only.
create table tool_source_evidence (
  id uuid primary key,
  call_id uuid not null,
  run_id uuid not null,
  agent_id uuid not null references agents,
  conversation_id uuid not null references conversations,
  source text not null check (length(source) between 1 and 256), -- a host or a server: never a query, never a secret
  audience text not null check (audience in ('conversation', 'agent', 'public')), -- as known then
  created_at timestamptz not null,
  unique (call_id)
);

-- What a result rests on: its own row, and the rows of what it read (a recalled memory's).
alter table tool_calls add column evidence uuid[] not null default '{}';
-- What a reply was built on: all that its run had seen.
alter table commitment_effects add column built_on uuid[] not null default '{}';

create table memories (
  id uuid primary key,
  agent_id uuid not null references agents,
  conversation_id uuid not null references conversations, -- where it was said
  text text not null check (length(text) between 1 and 4000),
  -- No stemming and no stop words: agents speak every language, often two in one sentence.
  words tsvector not null generated always as (to_tsvector('simple', text)) stored,
  audience text not null check (audience in ('conversation', 'agent')), -- of itself; its evidence may say less
  visibility text not null, -- audience and evidence together, as known then: what makes two memories the same
  evidence uuid[] not null,
  run_id uuid not null,
  call_id uuid not null unique, -- a call remembers once
  actors uuid[] not null, -- whose messages its run had taken in
  created_at timestamptz not null,
  forgotten_at timestamptz,
  forgotten_by text,
  forgotten_call uuid, -- null: a person did it
  check ((forgotten_at is null) = (forgotten_by is null)),
  check (forgotten_call is null or forgotten_at is not null)
);
create index memories_words on memories using gin (words) where forgotten_at is null;
create index memories_agent on memories (agent_id, created_at) where forgotten_at is null;
create unique index memories_same on memories (agent_id, visibility, md5(text)) where forgotten_at is null;
