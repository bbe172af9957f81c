import assert from "node:assert/strict";
import { isStrayServer, mountsBelow, rootIsBelow } from "../cluster/local/cleanup.ts";
import { withoutClusterRules } from "../cluster/local/network.ts";
import { reachableNameServers } from "../cluster/local/settings.ts";

describe("what a crashed cluster leaves", () => {
  it("is unmounted from the inside out, and nobody else's is touched", () => {
    const line = (point: string) => `36 35 0:40 / ${point} rw - tmpfs tmpfs rw`;
    const table = ["/", "/c/cluster/a", "/c/cluster/a/b", "/c/cluster-2/x", "/c/cluster/with\\040blank"]
      .map(line)
      .join("\n");
    assert.deepEqual(mountsBelow(table, ["/c/cluster"]), ["/c/cluster/with blank", "/c/cluster/a/b", "/c/cluster/a"]);
  });

  it("includes the processes whose root is in our folder, but not those that merely see our mounts", () => {
    const overlay = (point: string) =>
      `9 8 0:1 / ${point} rw - overlay overlay rw,lowerdir=/l,upperdir=/c/containerd/7/fs,workdir=/w`;
    assert.equal(rootIsBelow(overlay("/"), "/c/containerd"), true);
    assert.equal(rootIsBelow(overlay("/run/x/rootfs"), "/c/containerd"), false);
    assert.equal(rootIsBelow(overlay("/"), "/d/containerd"), false);
  });

  it("includes unrecorded servers that use our folder, but no kubectl of a person and no server of a test", () => {
    assert.equal(isStrayServer(["/c/bin/k-1/kubelet", "--root-dir=/c/cluster/kubelet"], "/c/bin", "/c/cluster"), true);
    assert.equal(
      isStrayServer(["/c/bin/k-1/kubectl", "--kubeconfig=/c/cluster/kubeconfig"], "/c/bin", "/c/cluster"),
      false,
    );
    assert.equal(isStrayServer(["/c/bin/e-1/etcd", "--data-dir=/tmp/x/etcd"], "/c/bin", "/c/cluster"), false);
    assert.equal(isStrayServer(["/usr/bin/kubelet", "--root-dir=/c/cluster/kubelet"], "/c/bin", "/c/cluster"), false);
  });

  it("is taken out of the packet rules, and others' rules stay in their order", () => {
    const saved = [
      "*filter",
      ":INPUT ACCEPT [0:0]",
      ":KUBE-ROUTER-INPUT - [0:0]",
      ":OTHER - [0:0]",
      "-A INPUT -j OTHER",
      '-A INPUT -m comment --comment "x" -j KUBE-ROUTER-INPUT',
      "-A KUBE-ROUTER-INPUT -j ACCEPT",
      "-A OTHER -j RETURN",
      "COMMIT",
    ];
    const kept = [
      "*filter",
      ":INPUT ACCEPT [0:0]",
      ":OTHER - [0:0]",
      "-A INPUT -j OTHER",
      "-A OTHER -j RETURN",
      "COMMIT",
    ];
    assert.equal(withoutClusterRules(saved.join("\n")), kept.join("\n"));
    assert.equal(withoutClusterRules(kept.join("\n")), undefined);
  });
});

describe("the name servers of pods", () => {
  it("are the host's, less those that only the host can reach", () => {
    assert.deepEqual(reachableNameServers("search x\nnameserver 127.0.0.53\nnameserver 10.0.0.2\nnameserver ::1\n"), [
      "10.0.0.2",
    ]);
  });
});
