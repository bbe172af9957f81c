/** An Agent's sandbox: shaped now so that Agents written today stay valid, acted upon by a later version. */
import {
  duration,
  flag,
  int,
  label,
  listMap,
  matching,
  object,
  objectName,
  oneOf,
  quantity,
  NOT_YET,
  secretRef,
  set,
} from "./fields.ts";
import { withRules } from "./rules.ts";

const credential = withRules(
  object("What Pawl adds to requests outside the sandbox; never visible inside.", {
    secretRef: secretRef("A Secret that holds the credential.").optional(),
    githubAppRef: object("A GitHub App; short-lived tokens are made from it.", {
      name: objectName("The Secret with keys appID, installationID and privateKey."),
    }).optional(),
    as: oneOf(["Bearer", "Basic", "Header"], "How it is sent."),
    header: matching(/^[A-Za-z0-9!#$%&'*+.^_`|~-]+$/, 128, "The header's name, for as: Header.").optional(),
  }),
  [
    {
      cel: "has(self.secretRef) != has(self.githubAppRef)",
      message: "give either secretRef or githubAppRef",
      holds: (self) => (self["secretRef"] !== undefined) !== (self["githubAppRef"] !== undefined),
    },
    {
      cel: "has(self.header) == (self.as == 'Header')",
      message: "header belongs to as: Header, and only to it",
      holds: (self) => (self["header"] !== undefined) === (self["as"] === "Header"),
    },
  ],
);

const destination = withRules(
  object("One host that the sandbox may reach.", {
    host: matching(
      /^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$/,
      253,
      "A host name in lower case, or *.example.com for its subdomains. Key of the list, with port.",
    ),
    port: int(1, 65_535, "The port.").default(443),
    profile: oneOf(
      ["None", "GitHub", "GitLab", "Npm", "PyPI", "Crates", "GoProxy", "Debian", "Oci"],
      "The list of what counts as a read on this host. Default None: GET and HEAD.",
    ).optional(),
    access: oneOf(["Read", "Write"], "Read: nothing that changes the host. Default Read.").optional(),
    tls: oneOf(
      ["Inspect", "Passthrough"],
      "Passthrough: the proxy sees nothing, so the first use counts as a change. Default Inspect.",
    ).optional(),
    paths: set(
      matching(/^\/[!-"$->@-~]*$/, 256, "A path prefix that begins with a slash."),
      64,
      "The paths that may be asked for. Required with a credential.",
    ).optional(),
    refs: set(
      matching(/^refs\/[!-~]+$/, 256, "A git ref or a glob over refs."),
      64,
      "The git refs that may be pushed.",
    ).optional(),
    credential: credential.optional(),
  }),
  [
    {
      cel: "!has(self.credential) || (has(self.paths) && size(self.paths) > 0)",
      message: "a host with a credential must list the paths it is for",
      holds: (self) =>
        self["credential"] === undefined || ((self["paths"] as readonly string[] | undefined)?.length ?? 0) > 0,
    },
    {
      cel: "!has(self.credential) || !self.host.startsWith('*.')",
      message: "a credential goes to one host, not to *.something",
      holds: (self) => self["credential"] === undefined || !String(self["host"]).startsWith("*."),
    },
    {
      cel: "!has(self.credential) || !has(self.tls) || self.tls == 'Inspect'",
      message: "a credential cannot be added to what the proxy does not see: use tls: Inspect",
      holds: (self) => self["credential"] === undefined || self["tls"] !== "Passthrough",
    },
  ],
);

export const workspace = object(`The sandbox that exec-class tools run in. ${NOT_YET}`, {
  profile: label("The runner profile, from the install's list. Default default.").optional(),
  resources: object("What a sandbox may use; at most what its profile allows.", {
    cpu: quantity('Processors, as a string: "2" or 500m.').optional(),
    memory: quantity("Memory, as in 4Gi.").optional(),
    ephemeralStorage: quantity("Scratch space, as in 10Gi.").optional(),
  }).optional(),
  egress: listMap(destination, ["host", "port"], 64, "Hosts that sandboxes may reach. Absent: none.").optional(),
  grants: listMap(
    object("One secret that is put inside the sandbox when the model asks for it by name.", {
      name: label("The name it is asked for. Key of the list."),
      secretRef: secretRef("Where its value is."),
      deliver: oneOf(["Env", "File"], "As an environment variable or as a file."),
    }),
    ["name"],
    16,
    "Secrets that may be put inside. A run that has taken one counts every command as a change.",
  ).optional(),
  snapshots: object("Copies of the files that outlive a pod.", {
    enabled: flag("Keep them. Default true.").optional(),
    maxBytes: int(0, 10_737_418_240, "The largest copy.").optional(),
  }).optional(),
  warm: int(0, 20, "Sandboxes kept ready. Default 0.").optional(),
  idleTimeout: duration("A sandbox unused for this long is given back.").optional(),
});
