-- Every worker looks for messages that nobody has decided about, twice a second; usually there is none.
-- pawl:breaking=false

create index message_undecided on message_events (received_at) where state = 'undecided';
