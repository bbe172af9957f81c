-- A turn whose lease lapsed tells the model so, once: the claim that took it over notes it, the next response clears it.
-- pawl:breaking=false

alter table runs add column interrupted boolean not null default false;
