-- How much of an answer has come so far, for display only: nothing is decided on it, and its text stays in the worker.
-- pawl:breaking=false

alter table runs add column streamed int not null default 0 check (streamed >= 0);
