/** Which resources there are, and objects as the API server gives them: untyped JSON that callers parse. */
import { AGENT, DECISION, GROUP, RUN, VERSION } from "@pawl/crds";

export type Resource = {
  readonly group: string;
  readonly version: string;
  readonly plural: string;
  readonly kind: string;
  readonly namespaced: boolean;
};

type Common = {
  readonly namespace?: string;
  readonly uid?: string;
  readonly resourceVersion?: string;
  readonly generation?: number;
  readonly creationTimestamp?: string;
  readonly deletionTimestamp?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly [key: string]: unknown;
};

export type Metadata = Common & { readonly name: string };

export type KubeObject = {
  readonly apiVersion?: string;
  readonly kind?: string;
  readonly metadata: Metadata;
  readonly [key: string]: unknown;
};

/** An object to be created: named, or named by the server from `generateName`. */
export type NewObject = {
  readonly apiVersion?: string;
  readonly kind?: string;
  readonly metadata: Common & { readonly name?: string; readonly generateName?: string };
  readonly [key: string]: unknown;
};

export type Ref = { readonly namespace?: string; readonly name: string };

const resource = (group: string, version: string, plural: string, kind: string, namespaced = true): Resource => ({
  group,
  version,
  plural,
  kind,
  namespaced,
});

export const AGENTS = resource(GROUP, VERSION, AGENT.plural, AGENT.kind);
export const RUNS = resource(GROUP, VERSION, RUN.plural, RUN.kind);
export const DECISIONS = resource(GROUP, VERSION, DECISION.plural, DECISION.kind);
export const SECRETS = resource("", "v1", "secrets", "Secret");
export const CONFIG_MAPS = resource("", "v1", "configmaps", "ConfigMap");
export const NAMESPACES = resource("", "v1", "namespaces", "Namespace", false);
export const EVENTS = resource("events.k8s.io", "v1", "events", "Event");
export const CRDS = resource(
  "apiextensions.k8s.io",
  "v1",
  "customresourcedefinitions",
  "CustomResourceDefinition",
  false,
);

/** The path of a collection (no name) or of one object; `subresource` as in `status`. */
export function pathOf(of: Resource, ref: { namespace?: string; name?: string }, subresource?: string): string {
  const root = of.group === "" ? `/api/${of.version}` : `/apis/${of.group}/${of.version}`;
  const namespace =
    of.namespaced && ref.namespace !== undefined ? `/namespaces/${encodeURIComponent(ref.namespace)}` : "";
  const name = ref.name === undefined ? "" : `/${encodeURIComponent(ref.name)}`;
  return `${root}${namespace}/${of.plural}${name}${subresource === undefined ? "" : `/${subresource}`}`;
}

export const apiVersionOf = (of: Resource): string => (of.group === "" ? of.version : `${of.group}/${of.version}`);

/** `namespace/name`, or the name alone for what has no namespace. */
export const keyOf = (object: { readonly metadata: Metadata }): string =>
  object.metadata.namespace === undefined
    ? object.metadata.name
    : `${object.metadata.namespace}/${object.metadata.name}`;

export function refOf(key: string): Ref {
  const slash = key.indexOf("/");
  return slash < 0 ? { name: key } : { namespace: key.slice(0, slash), name: key.slice(slash + 1) };
}

/** How a request is named in messages: `get runs demo/one`. */
export const wording = (
  verb: string,
  of: Resource,
  ref: { namespace?: string; name?: string },
  subresource?: string,
): string =>
  `${verb} ${of.plural}${subresource === undefined ? "" : `/${subresource}`}${
    ref.namespace === undefined && ref.name === undefined
      ? ""
      : ` ${[ref.namespace, ref.name].filter(Boolean).join("/")}`
  }`;
