/** The part of a turn's story that is about messages: who said what, what was decided, what was restarted for it. */
import { ofChain, triggersOf } from "./chain.ts";

/** Columns of the story statement, each an expression over the run `r`. */
export const MAIL_COLUMNS = `
      (select coalesce(jsonb_agg(jsonb_build_object('event', e.id, 'actor', coalesce(w.display, w.ext_id), 'text', coalesce(e.body, ''),
           'at', e.received_at, 'state', e.state, 'object', k.object_name, 'step', t.delivered_ordinal, 'role', t.role) order by e.seq), '[]')
         from (${triggersOf("(r.inherits || r.id)")}) t join message_events e on e.id = t.event_id join actors w on w.id = e.actor_id
         left join run_keys k on k.event_id = e.id) as messages,
      (select coalesce(jsonb_agg(jsonb_build_object('event', e.id, 'kind', e.kind, 'actor', coalesce(w.display, w.ext_id), 'text', e.body,
           'said', e.received_at, 'object', k.object_name, 'relation', i.relation, 'asked', i.asked, 'done', i.done, 'reason', i.reason,
           'source', i.source, 'at', i.at, 'state', e.state,
           'now', case when not ${ofChain("e.run_id", "r")} then e.run_id end) order by i.at, e.seq), '[]')
         from interrupts i join message_events e on e.id = i.event_id join actors w on w.id = e.actor_id
         left join run_keys k on k.event_id = e.id where ${ofChain("i.run_id", "r")}) as interrupts,
      (select coalesce(jsonb_agg(jsonb_build_object('id', p.id, 'queuedAt', p.queued_at, 'startedAt', p.started_at, 'endedAt', p.ended_at,
           'superseded', p.superseded_by is not null) order by p.queued_at), '[]') from runs p where ${ofChain("p.id", "r")}) as runs,
      (select jsonb_build_object('run', p.id, 'object', (select k.object_name from run_triggers t join message_events e on e.id = t.event_id
           join run_keys k on k.event_id = e.id where t.run_id = p.id order by e.seq limit 1))
         from logical_requests q join runs p on p.request_id = q.reconciles where q.id = r.request_id order by p.queued_at desc limit 1) as reconciles,
      (select coalesce(jsonb_agg(distinct jsonb_build_object('run', p.id, 'object', null)), '[]')
         from logical_requests q join runs p on p.request_id = q.id
         where q.reconciles = r.request_id and p.superseded_by is null) as reconciled_by`;

export type StoryMessage = {
  readonly event: string;
  readonly actor: string;
  readonly text: string;
  readonly at: Date;
  readonly state: string;
  /** The Run object that said it. */
  readonly object: string | null;
  /** The first step whose request contained it. */
  readonly step: number | null;
  /** How it came to the turn: as what it begins with, or while it was at work. */
  readonly role: string;
};

/** What was decided about a message that met the turn. */
export type StoryInterrupt = {
  readonly event: string;
  readonly kind: string;
  readonly actor: string;
  readonly text: string | null;
  readonly said: Date;
  readonly object: string | null;
  readonly relation: string;
  readonly asked: string;
  readonly done: string;
  readonly reason: string;
  /** Who said so: policy, stop_word, model, edit, delete. */
  readonly source: string;
  readonly at: Date;
  readonly state: string;
  /** The turn that it is in instead; null: none yet, or this one. */
  readonly now: string | null;
};

/** A run of the chain: the turn began as the first and is the last. */
export type StoryRun = {
  readonly id: string;
  readonly queuedAt: Date;
  readonly startedAt: Date | null;
  readonly endedAt: Date | null;
  /** A newer message took its place; else its work was gone on with after a clear yes. */
  readonly superseded: boolean;
};

export type StoryLink = { readonly run: string; readonly object: string | null };
