// What conntrack prints, read; and its arguments for deletions.
import { describe, expect, it } from 'vitest';
import { deletionArgs, parseEntries } from '../../src/kernel/conntrack.ts';
import { address } from '../oracle/universe.ts';

/** Lines of conntrack 1.4.7 -o id. */
const UDP =
  'udp      17 29 src=10.244.0.5 dst=10.96.0.10 sport=53982 dport=53 [UNREPLIED] src=10.244.1.7 dst=192.168.50.10 sport=5353 dport=40001 mark=0 zone=6 use=1 id=1518112841';
const TCP =
  'tcp      6 431999 ESTABLISHED src=fd00::1 dst=2001:db8::2 sport=1001 dport=443 packets=5 bytes=300 src=2001:db8::2 dst=fd00::1 sport=443 dport=1001 packets=4 bytes=240 [ASSURED] mark=16384 secctx=null use=2 id=677322876';
const ICMP =
  'icmp     1 99 src=10.244.0.5 dst=198.51.100.1 type=8 code=0 id=77 src=198.51.100.1 dst=192.168.50.10 type=0 code=0 id=1077 mark=0 use=1 id=816870726';
const OFFLOADED =
  'udp      17 src=10.244.0.5 dst=198.51.100.1 sport=9 dport=53 src=198.51.100.1 dst=10.244.0.5 sport=53 dport=9 [OFFLOAD] mark=0 use=3 id=1';
const OTHER =
  'unknown  99 99 src=10.244.0.5 dst=198.51.100.1 [UNREPLIED] src=198.51.100.1 dst=10.244.0.5 mark=0 use=1 id=1673157477';
const GRE =
  'gre      47 99 src=10.244.0.5 dst=198.51.100.1 srckey=0x5 dstkey=0x6 [UNREPLIED] src=198.51.100.1 dst=10.244.0.5 srckey=0x6 dstkey=0x5 mark=0 use=1 id=3892661570';
const ONE_WAY_ZONE =
  'udp      17 29 src=10.244.0.5 dst=198.51.100.1 sport=9 dport=53 zone-orig=5 [UNREPLIED] src=198.51.100.1 dst=10.244.0.5 sport=53 dport=9 mark=0 use=1 id=1176622791';

const POD = address('10.244.0.5');
const FAR = address('198.51.100.1');

describe('a line of the listing', () => {
  it('gives both directions of UDP, with its zone', () => {
    expect([...parseEntries(`${UDP}\n`, 4)]).toEqual([
      {
        family: 4,
        protocol: 17,
        zone: 6,
        id: 1_518_112_841,
        directionalZone: false,
        original: {
          source: POD,
          destination: address('10.96.0.10'),
          sourcePort: 53_982,
          destinationPort: 53,
        },
        reply: {
          source: address('10.244.1.7'),
          destination: address('192.168.50.10'),
          sourcePort: 5353,
          destinationPort: 40_001,
        },
      },
    ]);
  });

  it('gives TCP over IPv6 with counters and states between', () => {
    expect([...parseEntries(TCP, 6)]).toMatchObject([
      {
        protocol: 6,
        zone: 0,
        id: 677_322_876,
        original: { source: address('fd00::1'), sourcePort: 1001, destinationPort: 443 },
        reply: { destination: address('fd00::1'), sourcePort: 443, destinationPort: 1001 },
      },
    ]);
  });

  it("tells ICMP's identifiers apart from the entry's id", () => {
    expect([...parseEntries(ICMP, 4)]).toMatchObject([
      {
        protocol: 1,
        id: 816_870_726,
        original: { icmp: { type: 8, code: 0, id: 77 } },
        reply: { destination: address('192.168.50.10'), icmp: { type: 0, code: 0, id: 1077 } },
      },
    ]);
  });

  it('gives protocols without ports by number, and entries without a timeout', () => {
    const entries = [...parseEntries([OTHER, GRE, OFFLOADED].join('\n'), 4)];
    expect(entries.map(entry => [entry?.protocol, entry?.id])).toEqual([
      [99, 1_673_157_477],
      [47, 3_892_661_570],
      [17, 1],
    ]);
    expect(entries[0]?.original).toEqual({ source: POD, destination: FAR });
  });

  it('says when the entry has a zone in one direction only', () => {
    expect([...parseEntries(ONE_WAY_ZONE, 4)]).toMatchObject([{ directionalZone: true, zone: 0 }]);
  });

  it.each([
    ['without an id', OTHER.replace(/ id=.*/, '')],
    ['with one direction', UDP.replace(/ src=10.244.1.7 .* mark/, ' mark')],
    ['of TCP without ports', TCP.replaceAll(/[sd]port=\d+ /g, '')],
    ['with a port beyond', UDP.replace('dport=53 ', 'dport=65536 ')],
    ['with an address of the other family', UDP.replace('src=10.244.0.5', 'src=fd00::5')],
    ['with an address that is none', UDP.replace('src=10.244.0.5', 'src=010.244.0.5')],
    ['that is not one', 'conntrack v1.4.7 (conntrack-tools): 0 flow entries have been shown.'],
  ])('%s is counted, not read', (_what, line) => {
    expect([...parseEntries(`${UDP}\n${line}\n`, 4)]).toEqual([
      expect.objectContaining({ protocol: 17 }),
      undefined,
    ]);
  });
});

describe('a deletion', () => {
  const argsOf = (line: string, family: 4 | 6): readonly string[] =>
    [...parseEntries(line, family)].flatMap(entry =>
      entry === undefined ? [] : [deletionArgs(entry).join(' ')],
    );

  it('names both directions, the zone and every port', () => {
    expect(argsOf(UDP, 4)).toEqual([
      '-D -f ipv4 -o id -w 6 -p 17 -s 10.244.0.5 -d 10.96.0.10 -r 10.244.1.7 -q 192.168.50.10' +
        ' --sport 53982 --dport 53 --reply-port-src 5353 --reply-port-dst 40001',
    ]);
  });

  it("names ICMP's identifier, and no zone as zone 0", () => {
    expect(argsOf(ICMP, 4)).toEqual([
      '-D -f ipv4 -o id -w 0 -p 1 -s 10.244.0.5 -d 198.51.100.1 -r 198.51.100.1 -q 192.168.50.10' +
        ' --icmp-type 8 --icmp-code 0 --icmp-id 77',
    ]);
  });
});
