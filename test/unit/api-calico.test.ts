import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { formatAddress } from '../../src/cidr/address.ts';
import { formatCidr } from '../../src/cidr/cidr.ts';
import type { FelixConfig, IpPool, NetworkSet, Validated } from '../../src/api/model.ts';
import { readIpPool, readNetworkSet } from '../../src/api/validate-calico.ts';
import { readFelixConfiguration } from '../../src/api/validate-felix.ts';

const VERSIONS = ['crd.projectcalico.org/v1', 'projectcalico.org/v3'];

const calico = (kind: string, spec: unknown, metadata: unknown = { name: 'a' }): unknown => ({
  apiVersion: 'projectcalico.org/v3',
  kind,
  metadata,
  spec,
});

function must<T>(read: Validated<T>): T {
  if (!read.ok) throw new Error(JSON.stringify(read.faults));
  return read.value;
}

const faults = (read: Validated<unknown>): readonly string[] =>
  read.ok ? [] : read.faults.map(({ field, reason }) => `${field}: ${reason}`);
const warnings = (read: Validated<unknown>): readonly string[] =>
  read.warnings.map(({ field, reason }) => `${field}: ${reason}`);

describe('IPPool', () => {
  const pool = (spec: unknown): Validated<IpPool> => readIpPool(calico('IPPool', spec));

  it.each(VERSIONS)('is read from %s', apiVersion => {
    const object = {
      apiVersion,
      kind: 'IPPool',
      metadata: { name: 'v4', labels: { zone: 'a' }, annotations: { x: 'y' }, creationTimestamp: null },
      spec: { cidr: '10.244.0.0/16', natOutgoing: true, ipipMode: 'Always', nodeSelector: 'all()' },
      status: { conditions: [] },
    };
    expect(readIpPool(object)).toEqual({
      ok: true,
      value: {
        name: 'v4',
        labels: { zone: 'a' },
        cidr: { family: 4, base: 0x0af40000n, prefix: 16 },
        natOutgoing: true,
        loadBalancerOnly: false,
      },
      warnings: [],
    });
  });

  it.each([undefined, null, false])('does not masquerade when natOutgoing is %s', natOutgoing => {
    for (const disabled of [true, false, undefined]) {
      expect(must(pool({ cidr: '10.0.0.0/8', natOutgoing, disabled })).natOutgoing).toBe(false);
    }
  });

  it('masquerades when natOutgoing is true, disabled or not', () => {
    for (const disabled of [true, false, undefined]) {
      expect(must(pool({ cidr: '10.0.0.0/8', natOutgoing: true, disabled })).natOutgoing).toBe(true);
    }
  });

  it.each([
    [undefined, false],
    [null, false],
    [[], false],
    [['Workload', 'Tunnel'], false],
    [['Tunnel'], false],
    [['Workload', 'LoadBalancer'], false],
    [['SomethingNew', 'LoadBalancer'], false],
    [['LoadBalancer'], true],
    [['LoadBalancer', 'LoadBalancer'], true],
  ])('with allowedUses %j is for load balancers only: %s', (allowedUses, only) => {
    expect(must(pool({ cidr: '10.0.0.0/8', allowedUses })).loadBalancerOnly).toBe(only);
  });

  it('is masked when it has bits below its prefix, with a warning', () => {
    const read = pool({ cidr: '10.244.1.5/16' });
    expect(formatCidr(must(read).cidr)).toBe('10.244.0.0/16');
    expect(warnings(read)).toEqual([
      'spec.cidr: "10.244.1.5/16" has bits below its prefix and is read as 10.244.0.0/16',
    ]);
  });

  it.each([
    [{}, 'spec.cidr: is required'],
    [{ cidr: null }, 'spec.cidr: is null'],
    [{ cidr: '10.0.0.0' }, 'spec.cidr: "10.0.0.0" is not a CIDR'],
    [{ cidr: '010.0.0.0/8' }, 'spec.cidr: "010.0.0.0/8" is not an IPv4 address'],
    [{ cidr: '10.0.0.0/33' }, 'spec.cidr: "10.0.0.0/33" has a prefix that is not a number of 0 to 32'],
    [{ cidr: 7 }, 'spec.cidr: 7 is not a string'],
    [{ cidr: '10.0.0.0/8', natOutgoing: 'true' }, 'spec.natOutgoing: "true" is not true or false'],
    [{ cidr: '10.0.0.0/8', allowedUses: 'LoadBalancer' }, 'spec.allowedUses: "LoadBalancer" is not a list'],
    [{ cidr: '10.0.0.0/8', allowedUses: [1] }, 'spec.allowedUses[0]: 1 is not a string'],
    [null, 'spec: is null'],
  ])('is refused: %j', (spec, fault) => {
    expect(faults(pool(spec))).toEqual([expect.stringContaining(fault) as string]);
  });

  it('is refused under another group, kind or version', () => {
    const spec = { cidr: '10.0.0.0/8' };
    const metadata = { name: 'a' };
    expect(faults(readIpPool({ apiVersion: 'projectcalico.org/v4', metadata, spec }))).toEqual([
      'apiVersion: "projectcalico.org/v4" is not one of crd.projectcalico.org/v1, projectcalico.org/v3',
    ]);
    expect(faults(readIpPool({ kind: 'IPPoolList', metadata, spec }))).toEqual([
      'kind: "IPPoolList" is not one of IPPool',
    ]);
  });
});

describe('GlobalNetworkSet', () => {
  const networkSet = (spec: unknown): Validated<NetworkSet> =>
    readNetworkSet(calico('GlobalNetworkSet', spec));
  const netsOf = (spec: unknown): readonly string[] => must(networkSet(spec)).nets.map(formatCidr);

  it('reads plain addresses and host bits as Calico does, without a word', () => {
    const spec = { nets: ['192.0.2.7', '10.1.2.3/8', 'fd00::1', 'fd00::1/16'] };
    expect(netsOf(spec)).toEqual(['192.0.2.7/32', '10.0.0.0/8', 'fd00::1/128', 'fd00::/16']);
    expect(warnings(networkSet(spec))).toEqual([]);
  });

  it('leaves out what cannot be read and says so', () => {
    const spec = { nets: ['10.0.0.0/8', 'example.com', '10.0.0.0/33', 5] };
    expect(netsOf(spec)).toEqual(['10.0.0.0/8']);
    expect(warnings(networkSet(spec))).toEqual([
      'spec.nets[1]: "example.com" is not an IP address; it is left out',
      'spec.nets[2]: "10.0.0.0/33" has a prefix that is not a number of 0 to 32; it is left out',
      'spec.nets[3]: 5 is not a string; it is left out',
    ]);
  });

  it('is refused when nothing is left', () => {
    expect(faults(networkSet({ nets: ['a', 'b'] }))).toEqual(['spec.nets: none of the 2 nets can be read']);
  });

  it.each([undefined, null, {}, { nets: [] }, { nets: null }])('may hold nothing: %j', spec => {
    expect(netsOf(spec)).toEqual([]);
  });

  it('is refused when nets is no list', () => {
    expect(faults(networkSet({ nets: '10.0.0.0/8' }))).toEqual(['spec.nets: "10.0.0.0/8" is not a list']);
  });
});

describe('FelixConfiguration', () => {
  const felix = (spec: unknown): Validated<FelixConfig> =>
    readFelixConfiguration(calico('FelixConfiguration', spec, { name: 'default' }));

  it('gives every option that bears on translation', () => {
    const { natOutgoingAddress, ...rest } = must(
      felix({
        natOutgoingAddress: '192.0.2.1',
        natPortRange: '1024:65535',
        natOutgoingExclusions: 'IPPoolsAndHostIPs',
        iptablesNATOutgoingInterfaceFilter: 'eth+',
        chainInsertMode: 'Append',
        iptablesBackend: 'NFT',
        nftablesMode: 'Enabled',
        bpfEnabled: true,
        logSeverityScreen: 'Info',
      }),
    );
    expect(natOutgoingAddress && formatAddress(natOutgoingAddress)).toBe('192.0.2.1');
    expect(rest).toEqual({
      name: 'default',
      natPortRange: { start: 1024, end: 65535 },
      natOutgoingExclusions: 'IPPoolsAndHostIPs',
      natOutgoingInterface: 'eth+',
      chainInsertMode: 'Append',
      iptablesBackend: 'NFT',
      nftablesMode: 'Enabled',
      bpfEnabled: true,
    });
  });

  it.each([
    [1024, { start: 1024, end: 1024 }],
    ['1024', { start: 1024, end: 1024 }],
    ['1:65535', { start: 1, end: 65535 }],
    ['5:5', { start: 5, end: 5 }],
  ])('reads the port range %j', (natPortRange, range) => {
    expect(must(felix({ natPortRange })).natPortRange).toEqual(range);
  });

  it('reads words in any case, as Felix does', () => {
    expect(
      must(felix({ chainInsertMode: 'append', iptablesBackend: 'nft', nftablesMode: 'DISABLED' })),
    ).toEqual({
      name: 'default',
      chainInsertMode: 'Append',
      iptablesBackend: 'NFT',
      nftablesMode: 'Disabled',
    });
  });

  it.each([undefined, null, {}, { natOutgoingAddress: '', chainInsertMode: '', bpfEnabled: null }])(
    'has no option set: %j',
    spec => {
      const read = felix(spec);
      expect(must(read)).toEqual({ name: 'default' });
      expect(warnings(read)).toEqual([]);
    },
  );

  it.each([
    ['natOutgoingAddress', 'fd00::1', '"fd00::1" is not an IPv4 address, which Felix asks for'],
    ['natOutgoingAddress', '127.0.0.1', '"127.0.0.1" is a loopback address'],
    ['natOutgoingAddress', '010.0.0.1', '"010.0.0.1" is not an IPv4 address'],
    ['natPortRange', '5:1', '"5:1" is not a port or a range such as 1024:65535'],
    ['natPortRange', '0:70000', 'is not a port or a range'],
    ['natPortRange', 70000, '70000 is not a port or a range'],
    ['natPortRange', 1.5, '1.5 is not a port or a range'],
    ['natPortRange', 'http', '"http" is not a port or a range'],
    ['natPortRange', ['1:2'], 'a list is not a port or a range'],
    ['natOutgoingExclusions', 'HostIPs', '"HostIPs" is not one of IPPoolsOnly, IPPoolsAndHostIPs'],
    ['iptablesNATOutgoingInterfaceFilter', 'eth0 -j ACCEPT', 'is not an interface name'],
    ['bpfEnabled', 'yes', '"yes" is not true or false'],
  ])('leaves a bad %s out with a warning, and keeps the others: %j', (name, value, reason) => {
    const read = felix({ [name]: value, nftablesMode: 'Auto' });
    expect(must(read)).toEqual({ name: 'default', nftablesMode: 'Auto' });
    expect(warnings(read)).toEqual([
      expect.stringMatching(new RegExp(`^spec\\.${name}: .*; it is left out$`)) as string,
    ]);
    expect(warnings(read)[0]).toContain(reason);
  });
});

describe('any JSON', () => {
  it('is read or refused with a fault, by every reader', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (value, member) => {
        const spec = {
          cidr: value,
          natOutgoing: member,
          allowedUses: value,
          nets: member,
          natPortRange: value,
        };
        for (const read of [readIpPool, readNetworkSet, readFelixConfiguration]) {
          for (const object of [
            value,
            { metadata: value, spec: member },
            { metadata: { name: 'a' }, spec },
          ]) {
            const result = read(object);
            expect(result.ok || result.faults.length > 0).toBe(true);
          }
        }
      }),
      { numRuns: 500 },
    );
  });
});
