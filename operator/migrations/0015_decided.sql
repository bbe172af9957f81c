-- The look at what changed reads the decisions about messages by their time.
-- pawl:breaking=false

create index interrupts_at on interrupts (at);
