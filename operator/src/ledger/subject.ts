/** What a person who decides or answers names: a request by its id, and the Run that he may speak about. */

/** A request's id, as it stands in a status; anything else is one that nobody knows. */
export const REQUEST_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/**
 * That the Run `:object` of the namespace `:namespace_uid` (and of the UID `:object_uid`, if that is given) asked something
 * of this run. A fact of other tables: a statement that reads it compares the run's version with its snapshot's.
 */
export const isSubject = (run: string): string => `
             exists (select from run_triggers t join run_keys k on k.event_id = t.event_id where t.run_id = ${run}
                     and k.namespace_uid = :namespace_uid and k.object_name = :object
                     and (:object_uid is null or k.object_uid = :object_uid))`;
