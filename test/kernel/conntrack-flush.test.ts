// FlushChanged with real flows: the plan of the renderer in a real kernel, changed, and exactly the connections whose
// verdict changed lose their entry. Everything else keeps its own, by its id.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { flushChanged, type FlushReport } from '../../src/applier/flush.ts';
import { FAMILIES as BOTH, type Family, formatAddress } from '../../src/cidr/address.ts';
import type { Flow, Probe, ProbeProtocol, World } from '../../src/demo/model.ts';
import { openWorld } from '../../src/demo/world.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { type ConntrackEntry, listEntries } from '../../src/kernel/conntrack.ts';
import { createDriver } from '../../src/kernel/driver.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { runContext } from '../../src/kernel/run.ts';
import type { Plan } from '../../src/planner/plan.ts';
import { renderFamily } from '../../src/render/render.ts';
import { type PolicySketch, planOf } from '../oracle/hand-made.ts';
import { address } from '../oracle/universe.ts';
import { runLine } from './world-support.ts';

/** Addresses of the default world; what is in `second` is reached by eth1. */
const FAMILIES = [
  {
    family: 4,
    iptables: 'iptables',
    pod: '10.244.1.5',
    peer: '10.245.0.9',
    far: '8.8.8.8',
    bank: '203.0.113.7',
    second: '192.0.2.77',
    service: '10.96.0.10',
    serviceTo: '203.0.113.9:8080',
    backend: '203.0.113.9',
    node: '192.168.50.10',
    secondNode: '192.168.60.10',
    snat: '198.51.100.7',
  },
  {
    family: 6,
    iptables: 'ip6tables',
    pod: 'fd00:244::1:5',
    peer: 'fd00:245::9',
    far: '2001:4860:4860::8888',
    bank: '2001:db8:b::7',
    second: '2001:db8:2::77',
    service: 'fd00:96::10',
    serviceTo: '[2001:db8:b::9]:8080',
    backend: '2001:db8:b::9',
    node: '2001:db8:50::10',
    secondNode: '2001:db8:60::10',
    snat: '2001:db8:51::7',
  },
] as const;
type Case = (typeof FAMILIES)[number];

const SETS = {
  pods: ['10.244.0.0/16', '10.245.0.0/16', 'fd00:244::/48', 'fd00:245::/48'],
  bank: ['203.0.113.0/24', '2001:db8:b::/48'],
};
const SNAT = { addresses: { 4: address('198.51.100.7'), 6: address('2001:db8:51::7') } };

/** natOutgoing for all pods, and the policies before it. */
const planWith = (...policies: readonly PolicySketch[]): Plan =>
  planOf({ sets: SETS, policies, poolDefault: { source: 'pods', spared: 'pods' } });

let world: World;
beforeEach(async () => {
  const routes = ['192.0.2.0/24', '2001:db8:2::/48'].map(cidr => ({ cidr, via: 'eth1' }));
  world = await openWorld({ routes }, new AbortController().signal);
});
afterEach(() => world.close());

const entriesOf = async (family: Family): Promise<readonly ConntrackEntry[]> => {
  const context = runContext({ exec: world.exec, clock: systemClock });
  return [...(await listEntries(context, family))].filter(entry => entry !== undefined);
};

const idsOf = (entries: readonly ConntrackEntry[]): readonly number[] =>
  entries.map(({ id }) => id).sort((a, b) => a - b);

const probe = (source: string, destination: string, protocol: ProbeProtocol): Probe => ({
  from: 'pod',
  source,
  destination,
  protocol,
  destinationPort: 443,
});

describe.each(['nft', 'legacy'] as const)('iptables-%s', backend => {
  const put = async (plan: Plan): Promise<void> => {
    const driver = createDriver({ exec: world.exec, clock: systemClock, backend, log: silentLog });
    const report = await driver.apply(BOTH.map(family => renderFamily(plan, new Map(), family)));
    for (const family of Object.values(report.families)) expect(family).toMatchObject({ ok: true });
  };

  const change = async (before: Plan, after: Plan): Promise<FlushReport> => {
    await put(after);
    const node = { values: new Map() };
    return flushChanged({
      before: { plan: before, node },
      after: { plan: after, node },
      exec: world.exec,
      clock: systemClock,
    });
  };

  const open = async (f: Case, destination: string, seenAs: string): Promise<readonly Flow[]> => {
    const flows: Flow[] = [];
    for (const protocol of ['tcp', 'udp', 'icmp'] as const) {
      const flow = await world.openFlow(probe(f.pod, destination, protocol));
      expect(await flow.exchange(), protocol).toMatchObject({ address: seenAs, answered: true });
      flows.push(flow);
    }
    return flows;
  };

  const to = (entries: readonly ConntrackEntry[], destination: string): readonly ConntrackEntry[] =>
    entries.filter(({ reply }) => formatAddress(reply.source) === destination);

  test.each(FAMILIES)('IPv$family: exactly the changed flows are asked anew', async f => {
    const before = planWith({
      name: 'bank',
      connectionPolicy: 'FlushChanged',
      rules: [{ to: 'bank', action: 'SNAT', snat: SNAT }],
    });
    await put(before);
    const [, bankUdp, bankIcmp] = await open(f, f.bank, f.snat);
    const others: { readonly flow: Flow; readonly seenAs: string }[] = [
      ...(await open(f, f.far, f.node)).map(flow => ({ flow, seenAs: f.node })),
      ...(await open(f, f.peer, f.pod)).map(flow => ({ flow, seenAs: f.pod })),
    ];
    for (const from of ['node', 'outside'] as const) {
      const [source, destination] = from === 'node' ? [f.node, f.bank] : [f.bank, f.pod];
      const flow = await world.openFlow({ ...probe(source, destination, 'udp'), from });
      expect(await flow.exchange()).toMatchObject({ address: source, answered: true });
      others.push({ flow, seenAs: source });
    }
    const live = await entriesOf(f.family);
    const changed = to(live, f.bank).filter(({ original }) => formatAddress(original.source) === f.pod);
    expect(changed).toHaveLength(3);
    const after = planWith({ name: 'bank', connectionPolicy: 'FlushChanged', rules: [{ to: 'bank' }] });
    const report = await change(before, after);
    expect(report).toMatchObject({
      deleted: 3,
      perPolicy: [{ policy: 'bank', deleted: 3 }],
      skipped: [],
      errors: [],
    });
    expect(report.looked).toBeGreaterThanOrEqual(live.length);
    expect(idsOf(await entriesOf(f.family))).toEqual(idsOf(live.filter(entry => !changed.includes(entry))));
    for (const { flow, seenAs } of others) {
      expect(await flow.exchange()).toMatchObject({ address: seenAs, answered: true });
    }
    for (const flow of [bankUdp, bankIcmp]) {
      expect(await flow?.exchange()).toMatchObject({ address: f.pod, answered: true });
    }
    // Nothing is left to do.
    expect(await change(before, after)).toMatchObject({ deleted: 0, errors: [] });
  });

  test.each(FAMILIES)('IPv$family: a Service is judged by where it leads', async f => {
    for (const protocol of ['tcp', 'udp']) {
      const match = `-d ${f.service} -p ${protocol} --dport 443`;
      const rule = `-t nat -A PREROUTING ${match} -j DNAT --to-destination ${f.serviceTo}`;
      await runLine(world.exec, `${f.iptables}-${backend} ${rule}`);
    }
    const before = planWith();
    await put(before);
    const arrivesAt = { address: f.backend, port: 8080 };
    const flow = await world.openFlow({ ...probe(f.pod, f.service, 'udp'), arrivesAt });
    const tcp = await world.openFlow({ ...probe(f.pod, f.service, 'tcp'), arrivesAt });
    for (const one of [flow, tcp]) {
      expect(await one.exchange()).toMatchObject({ address: f.node, answered: true });
    }
    const onPort = (port: number): Plan =>
      planWith({
        name: 'bank',
        connectionPolicy: 'FlushChanged',
        rules: [{ to: 'bank', ports: [{ protocol: 'UDP', port, endPort: port }] }],
      });
    expect(await change(before, onPort(443))).toMatchObject({ deleted: 0, errors: [] });
    expect(await change(before, onPort(8080))).toMatchObject({ deleted: 1, errors: [] });
    expect(await flow.exchange()).toMatchObject({ address: f.pod, answered: true });
    expect(await tcp.exchange()).toMatchObject({ address: f.node, answered: true });
  });

  test.each(FAMILIES)('IPv$family: a rule for an interface takes what leaves there', async f => {
    const before = planWith();
    await put(before);
    const [, udp] = await open(f, f.second, f.secondNode);
    const [, far] = await open(f, f.far, f.node);
    const live = await entriesOf(f.family);
    const report = await change(
      before,
      planWith({
        name: 'second',
        connectionPolicy: 'FlushChanged',
        rules: [{ outInterfaces: ['eth1'] }],
      }),
    );
    expect(report).toMatchObject({ deleted: 3, skipped: [], errors: [] });
    const second = to(live, f.second);
    expect(idsOf(await entriesOf(f.family))).toEqual(idsOf(live.filter(entry => !second.includes(entry))));
    expect(await udp?.exchange()).toMatchObject({ address: f.pod, answered: true });
    expect(await far?.exchange()).toMatchObject({ address: f.node, answered: true });
  });

  test.each(FAMILIES)('IPv$family: what another program translated stays', async f => {
    const foreign = `-t nat -A POSTROUTING -s ${f.pod} -d ${f.bank} -p udp -j SNAT --to-source ${f.snat}`;
    await runLine(world.exec, `${f.iptables}-${backend} ${foreign}`);
    // Only UDP is theirs: we leave the bank alone before.
    const before = planOf({ sets: SETS });
    await put(before);
    const udp = await world.openFlow(probe(f.pod, f.bank, 'udp'));
    expect(await udp.exchange()).toMatchObject({ address: f.snat, answered: true });
    const icmp = await world.openFlow(probe(f.pod, f.bank, 'icmp'));
    expect(await icmp.exchange()).toMatchObject({ address: f.pod, answered: true });
    const after = planWith({
      name: 'bank',
      connectionPolicy: 'FlushChanged',
      rules: [{ to: 'bank', action: 'Masquerade' }],
    });
    expect(await change(before, after)).toMatchObject({
      deleted: 1,
      skipped: [{ reason: 'translatedByOthers', entries: 1 }],
      errors: [],
    });
    expect(await udp.exchange()).toMatchObject({ address: f.snat, answered: true });
    expect(await icmp.exchange()).toMatchObject({ address: f.node, answered: true });
  });
});
