import assert from "node:assert/strict";
import { allowance, isPublicAddress, plainAddress } from "#tools/addresses.ts";

describe("addresses a tool may connect to", () => {
  const refused = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "10.0.0.1",
    "10.96.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
    "198.18.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "fec0::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2001:0:4136:e378::",
    "::ffff:127.0.0.1",
    "::ffff:a9fe:a9fe",
    "64:ff9b::a00:1",
    "64:ff9b:1::1",
    "::7f00:1",
    "100::1",
    "not-an-address",
    "",
  ];
  for (const address of refused) {
    it(`refuses ${address === "" ? "an empty text" : address}`, () => assert.equal(isPublicAddress(address), false));
  }
  const open = [
    "1.1.1.1",
    "8.8.8.8",
    "172.32.0.1",
    "192.167.0.1",
    "100.128.0.1",
    "2606:4700::1111",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
  ];
  for (const address of open) it(`permits ${address}`, () => assert.equal(isPublicAddress(address), true));

  it("sees an IPv4 address in every dress", () => {
    assert.equal(plainAddress("::ffff:10.1.2.3"), "10.1.2.3");
    assert.equal(plainAddress("0:0:0:0:0:FFFF:0A01:0203"), "10.1.2.3");
    assert.equal(plainAddress("64:ff9b::0a01:0203"), "10.1.2.3");
  });

  it("allows by network, by address and by whole host name only", () => {
    const allowed = allowance(["10.1.0.0/16", "127.0.0.1", "world.pawl.svc", "fd00::/8"]);
    assert.equal(allowed.address("10.1.2.3"), true);
    assert.equal(allowed.address("::ffff:10.1.2.3"), true);
    assert.equal(allowed.address("10.2.0.1"), false);
    assert.equal(allowed.address("127.0.0.1"), true);
    assert.equal(allowed.address("127.0.0.2"), false);
    assert.equal(allowed.address("fd12::1"), true);
    assert.equal(allowed.host("WORLD.pawl.svc."), true);
    assert.equal(allowed.host("evil-world.pawl.svc"), false);
    assert.equal(allowed.host("world.pawl.svc.evil.example"), false);
  });

  for (const bad of ["10.0.0.0/33", "10.0.0/8", "*.example.com", "http://x", "a b", ""]) {
    it(`refuses "${bad}" as an entry`, () => assert.throws(() => allowance([bad])));
  }
});
