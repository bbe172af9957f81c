import assert from "node:assert/strict";
import { linkerFlags } from "../cluster/binaries.ts";
import { referenceOf } from "../images/images.ts";

describe("an image's reference", () => {
  const one = { name: "pawl.example/pawl", manifest: { digest: "sha256:12", size: 1 }, blobs: [] };

  it("names the image by its digest", () => {
    assert.equal(referenceOf(one).ref, "pawl.example/pawl@sha256:12");
  });

  it("names it where it was pushed to, by the same digest", () => {
    const expected = { ref: "r.example/me/pawl@sha256:12", repository: "r.example/me/pawl", digest: "sha256:12" };
    assert.deepEqual(referenceOf(one, "r.example/me/pawl"), expected);
  });
});

describe("the programs of Kubernetes", () => {
  it("are told the version that their module names", () => {
    assert.match(
      linkerFlags("kubernetes", "require (\n\tk8s.io/kubernetes v1.37.2\n)"),
      /gitVersion=v1\.37\.2 .*gitMajor=1 .*gitMinor=37$/,
    );
    assert.equal(linkerFlags("etcd", "require x v1"), "-s -w");
  });
});
