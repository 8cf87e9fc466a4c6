// The API server goes away, comes back, forgets, falls silent, is slow, changes its CA, and tokens expire: rules stay,
// and what was changed meanwhile is followed without a restart of ours and without a storm of requests.
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { block, policy, pool } from '../kernel/scene.ts';
import { mostWithin } from './audit.ts';
import { APPLIER, OPERATOR } from './cluster.ts';
import { type Lab, type LabNode, type LabOperator, openLab } from './lab.ts';
import { writeAccount } from './program.ts';
import { waitFor } from './wait.ts';

const POD = '10.244.1.5';
const FAR = '8.8.8.8';
/** Within ten seconds, of all watches, lists and writes: twelve watches and what follows from a change. */
const MOST = { operator: 120, applier: 30 } as const;
const AWAY_MS = 125_000;

describe('accidents of the API server', () => {
  let lab: Lab;
  let node: LabNode;
  let operator: LabOperator;
  const signal = new AbortController().signal;

  beforeAll(async () => {
    lab = await openLab({ flags: ['--service-account-extend-token-expiration=false'] }, signal);
    operator = await lab.startOperator();
    node = await lab.addNode('worker-1');
    await lab.cluster.apply(pool('main', '10.244.0.0/16'));
    await node.sees({ source: POD, destination: FAR }, node.address[4]);
  });
  afterAll(() => lab?.close());

  let number = 0;
  /** A change goes from the API to packets within the limit. */
  const follows = async (limitMs: number): Promise<void> => {
    number += 1;
    const there = `9.9.${number}.1`;
    await lab.cluster.apply(
      policy(`p-${number}`, [{ to: [block(`9.9.${number}.0/24`)], action: 'Preserve' }]),
    );
    await waitFor(
      async () => ((await node.seen({ source: POD, destination: there })) === POD ? true : undefined),
      {
        what: `policy p-${number} to be followed`,
        limitMs,
        detail: () =>
          [...operator.log().slice(-8), ...node.applier().log().slice(-8)]
            .map(line => JSON.stringify(line))
            .join('\n'),
      },
    );
  };
  const bounded = async (from: number): Promise<void> => {
    const entries = (await lab.cluster.audit()).filter(({ at }) => at >= from);
    const of = (user: string): number =>
      mostWithin(
        entries.filter(entry => entry.user === user),
        10_000,
      );
    expect(of(OPERATOR)).toBeLessThanOrEqual(MOST.operator);
    expect(of(APPLIER)).toBeLessThanOrEqual(MOST.applier);
  };
  const neverRestarted = (): void => {
    expect([operator.ended(), node.applier().ended()]).toEqual([false, false]);
  };

  it('gone for two minutes: rules stay and are mended; back again: changes are followed', {
    timeout: 300_000,
  }, async () => {
    const { server } = lab.cluster;
    const from = Date.now();
    const attempts = operator.relay.connections + node.relay.connections;
    await server.stop();
    const flushed = await node.world.exec.run({
      tool: 'iptables-nft',
      args: ['-t', 'nat', '-F', 'masq-POSTROUTING'],
      timeoutMs: 5000,
    });
    expect(flushed.code).toBe(0);
    await node.sees({ source: POD, destination: FAR }, POD);
    await waitFor(
      async () =>
        (await node.seen({ source: POD, destination: FAR })) === node.address[4] ? true : undefined,
      {
        what: 'the rules to be mended without an API',
        limitMs: 45_000,
      },
    );
    await sleep(Math.max(0, AWAY_MS - (Date.now() - from)));
    expect(await node.seen({ source: POD, destination: FAR })).toBe(node.address[4]);
    // Each of the watches backs off to half a minute; the lease is tried every other second.
    expect(operator.relay.connections + node.relay.connections - attempts).toBeLessThan(400);
    await server.start();
    await follows(45_000);
    await bounded(from);
    neverRestarted();
  });

  it('a version that is too old (410): all is listed again, and what was deleted meanwhile is gone', {
    timeout: 150_000,
  }, async () => {
    const { server } = lab.cluster;
    await lab.cluster.apply(pool('other', '10.245.0.0/16'));
    await node.sees({ source: '10.245.1.5', destination: FAR }, node.address[4]);
    const from = Date.now();
    operator.relay.refuse();
    node.relay.refuse();
    await lab.cluster.remove('IPPool/v1', 'other');
    // A server that starts knows no events from before.
    await server.stop();
    await server.start();
    operator.relay.heal();
    node.relay.heal();
    await waitFor(
      async () =>
        (await node.seen({ source: '10.245.1.5', destination: FAR })) === '10.245.1.5' ? true : undefined,
      {
        what: 'the deleted pool to be gone',
        limitMs: 60_000,
      },
    );
    const lists = (await lab.cluster.audit()).filter(
      ({ user, verb, resource, at }) =>
        at >= from && user === OPERATOR && verb === 'list' && resource === 'ippools',
    );
    expect(lists.length).toBeGreaterThan(0);
    await follows(60_000);
    await bounded(from);
    neverRestarted();
  });

  it('a connection that falls silent is noticed', { timeout: 200_000 }, async () => {
    const from = Date.now();
    operator.relay.blackhole();
    node.relay.blackhole();
    // Connections that are made from now on work; those that were there hear nothing, and nobody closes them.
    operator.relay.heal();
    node.relay.heal();
    await follows(120_000);
    await bounded(from);
    neverRestarted();
  });

  it('slow answers only take their time', { timeout: 100_000 }, async () => {
    const from = Date.now();
    operator.relay.delay(1500);
    operator.relay.cut();
    node.relay.delay(1500);
    node.relay.cut();
    await follows(60_000);
    operator.relay.delay(0);
    node.relay.delay(0);
    operator.relay.cut();
    node.relay.cut();
    await follows(45_000);
    await bounded(from);
    neverRestarted();
  });

  it('tokens that expire are read again', { timeout: 150_000 }, async () => {
    const from = Date.now();
    const fresh = [
      await lab.cluster.token('natoutgoing-operator'),
      await lab.cluster.token('natoutgoing-applier', { node: node.name }),
    ];
    await writeAccount(operator.account, {
      token: await lab.cluster.token('natoutgoing-operator', { seconds: 20 }),
    });
    await writeAccount(node.account, {
      token: await lab.cluster.token('natoutgoing-applier', { node: node.name, seconds: 20 }),
    });
    // What was read is used for a minute, so the short ones come into use after that; then they are of no use any more.
    operator.relay.cut();
    node.relay.cut();
    await sleep(65_000);
    operator.relay.cut();
    node.relay.cut();
    await waitFor(
      async () => {
        const refused = (await lab.cluster.audit()).filter(({ code, at }) => code === 401 && at >= from);
        return refused.length > 0 ? true : undefined;
      },
      { what: 'an expired token to be refused', limitMs: 60_000 },
    );
    await writeAccount(operator.account, { token: fresh[0] ?? '' });
    await writeAccount(node.account, { token: fresh[1] ?? '' });
    await follows(60_000);
    await bounded(from);
    neverRestarted();
  });

  it('a new CA is followed', { timeout: 150_000 }, async () => {
    const { server } = lab.cluster;
    const from = Date.now();
    await server.stop();
    await server.start({ newCa: true });
    await writeAccount(operator.account, { ca: server.ca });
    await writeAccount(node.account, { ca: server.ca });
    await follows(60_000);
    await bounded(from);
    neverRestarted();
  });
});
