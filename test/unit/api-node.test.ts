import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { formatAddress } from '../../src/cidr/address.ts';
import type { ClusterNode } from '../../src/api/model.ts';
import { readNode } from '../../src/api/validate-node.ts';

const node = (status: unknown, metadata: unknown = { name: 'node-1' }): unknown => ({
  apiVersion: 'v1',
  kind: 'Node',
  metadata,
  spec: { podCIDR: '10.244.0.0/24' },
  status,
});

function must(object: unknown): ClusterNode {
  const read = readNode(object);
  if (!read.ok) throw new Error(JSON.stringify(read.faults));
  return read.value;
}

const addressesOf = (object: unknown): readonly string[] =>
  must(object).addresses.map(({ type, address }) => `${type} ${formatAddress(address)}`);

describe('Node', () => {
  it('has its labels, annotations and the addresses of both families, in order', () => {
    const status = {
      addresses: [
        { type: 'Hostname', address: 'node-1' },
        { type: 'InternalIP', address: '192.0.2.10' },
        { type: 'ExternalIP', address: '2001:DB8::10' },
        { type: 'InternalIP', address: 'fd00::10' },
        { type: 'InternalDNS', address: 'node-1.example.com' },
      ],
      conditions: [],
    };
    const object = node(status, {
      name: 'node-1',
      labels: { zone: 'a' },
      annotations: { 'example.com/ip': '1' },
    });
    expect(must(object)).toMatchObject({
      name: 'node-1',
      labels: { zone: 'a' },
      annotations: { 'example.com/ip': '1' },
    });
    expect(addressesOf(object)).toEqual([
      'InternalIP 192.0.2.10',
      'ExternalIP 2001:db8::10',
      'InternalIP fd00::10',
    ]);
  });

  it.each([undefined, null, {}, { addresses: null }, { addresses: [] }])(
    'may have no address yet: %j',
    status => {
      expect(must(node(status))).toEqual({ name: 'node-1', labels: {}, annotations: {}, addresses: [] });
    },
  );

  it('leaves out an address that cannot be read, and says so', () => {
    const object = node({
      addresses: [
        { type: 'InternalIP', address: 'node-1' },
        { type: 'InternalIP', address: 'fe80::1%eth0' },
        { type: 'ExternalIP' },
        null,
        { type: 'InternalIP', address: '192.0.2.10' },
      ],
    });
    expect(addressesOf(object)).toEqual(['InternalIP 192.0.2.10']);
    expect(readNode(object).warnings.map(({ field, reason }) => `${field}: ${reason}`)).toEqual([
      'status.addresses[0].address: "node-1" is not an IP address; it is left out',
      'status.addresses[1].address: "fe80::1%eth0" has a zone id, which no rule can hold; it is left out',
      'status.addresses[2].address: null is not a string; it is left out',
    ]);
  });

  it.each([
    [node({ addresses: 'x' }), 'status.addresses', '"x" is not a list'],
    [node({}, {}), 'metadata.name', 'is required'],
    [node({}, { name: 'a', labels: { zone: 1 } }), 'metadata.labels.zone', '1 is not a string'],
    [node({}, { name: 'a', annotations: [] }), 'metadata.annotations', 'a list is not an object'],
    [{ ...(node({}) as object), apiVersion: 'v2' }, 'apiVersion', '"v2" is not one of v1'],
  ])('is refused with its field, case %#', (object, field, reason) => {
    expect(readNode(object)).toMatchObject({ ok: false, faults: [{ field, reason }] });
  });

  it('keeps labels named as members of Object.prototype', () => {
    const metadata: unknown = JSON.parse('{"name":"a","labels":{"__proto__":"x","constructor":"y"}}');
    expect(Object.entries(must(node({}, metadata)).labels)).toEqual([
      ['__proto__', 'x'],
      ['constructor', 'y'],
    ]);
  });

  it('is read or refused with a fault, whatever it is', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (value, member) => {
        for (const object of [value, node(value), node({ addresses: [member] }), node({}, member)]) {
          const read = readNode(object);
          expect(read.ok || read.faults.length > 0).toBe(true);
        }
      }),
      { numRuns: 500 },
    );
  });
});
