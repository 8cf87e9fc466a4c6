// Operator and applier killed at random moments during a stream of changes: what is in the kernel at the end is what the
// objects at the end ask for.
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { FAMILIES, parseAddress } from '../../src/cidr/address.ts';
import { loadManifests } from '../../src/cli/manifests.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { createDriver } from '../../src/kernel/driver.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { decider } from '../../src/planner/decide.ts';
import { planNode } from '../../src/planner/plan-snapshot.ts';
import { renderFamily } from '../../src/render/render.ts';
import { block, policy, pool } from '../kernel/scene.ts';
import { type Lab, type LabNode, type LabOperator, openLab } from './lab.ts';
import { waitFor } from './wait.ts';

const KILLS = 50;
/** The next operator leads after so long. */
const LEASE = ['--lease-seconds', '3'];
const SOURCES = ['10.244.1.5', '10.244.9.9', '10.245.1.5'];
const DESTINATIONS = ['8.8.8.8', '9.9.1.1', '9.9.2.1', '9.9.3.1', '172.16.5.5'];

describe('killed at random', () => {
  let lab: Lab;
  let node: LabNode;
  let operator: LabOperator;
  const signal = new AbortController().signal;

  beforeAll(async () => {
    lab = await openLab({}, signal);
    operator = await lab.startOperator({ args: LEASE });
    node = await lab.addNode('worker-1', { labels: { zone: 'a' } });
    await lab.cluster.apply(pool('main', '10.244.0.0/16'));
    await node.sees({ source: SOURCES[0] ?? '', destination: '8.8.8.8' }, node.address[4]);
  });
  afterAll(() => lab?.close());

  const anyOf = <T>(items: readonly T[]): T => items[Math.floor(Math.random() * items.length)] as T;
  const actions = ['Preserve', 'Masquerade', 'SNAT'] as const;
  const change = async (): Promise<void> => {
    const { cluster } = lab;
    const n = anyOf([1, 2, 3]);
    const action = anyOf(actions);
    const rule = {
      to: [block(`9.9.${n}.0/24`)],
      action,
      ...(action === 'SNAT' ? { snat: { addresses: ['198.51.100.7'] } } : {}),
    };
    await anyOf([
      () =>
        cluster.apply(
          policy(
            `p-${n}`,
            [rule],
            anyOf([
              {},
              { priority: 100 * n },
              { nodeSelector: { matchLabels: { zone: anyOf(['a', 'b']) } } },
            ]),
          ),
        ),
      () => cluster.remove('MasqPolicy', `p-${n}`),
      () => cluster.apply(pool('nested', '10.244.9.0/24', { natOutgoing: anyOf([true, false]) })),
      () => cluster.remove('IPPool/v1', 'nested'),
      () => cluster.apply(pool('other', '10.245.0.0/16', { natOutgoing: anyOf([true, false]) })),
      () => cluster.patch('IPPool/v1', 'main', { spec: { natOutgoing: anyOf([true, false]) } }),
    ])();
  };

  /** Objects of the API as a person would save them. */
  const wanted = async (): Promise<ReturnType<typeof planNode>> => {
    const kinds = ['MasqPolicy', 'IPPool/v1', 'Node'] as const;
    const items = (await Promise.all(kinds.map(kind => lab.cluster.list(kind)))).flatMap((objects, i) =>
      objects.map(({ metadata, ...rest }) => {
        const { name, labels, annotations, creationTimestamp } = metadata as Record<string, unknown>;
        const { spec, status } = rest as Record<string, unknown>;
        const apiVersion = ['natoutgoing.io/v1alpha1', 'crd.projectcalico.org/v1', 'v1'][i];
        const kind = (kinds[i] ?? '').split('/')[0];
        return {
          apiVersion,
          kind,
          metadata: { name, labels, annotations, creationTimestamp },
          spec,
          ...(kind === 'Node' ? { status } : {}),
        };
      }),
    );
    const manifests = await loadManifests(['-'], () =>
      Promise.resolve(JSON.stringify({ apiVersion: 'v1', kind: 'List', items })),
    );
    expect(manifests.verdicts.filter(({ verdict }) => verdict === 'refused')).toEqual([]);
    return planNode(manifests.snapshot, node.name);
  };

  it(`${KILLS} times: the kernel ends as the objects ask`, { timeout: 600_000 }, async () => {
    const end = new AbortController();
    const stream = (async () => {
      while (!end.signal.aborted) {
        await change();
        await sleep(Math.random() * 60);
      }
    })();
    for (let kill = 0; kill < KILLS; kill++) {
      await sleep(Math.random() * 700);
      if (kill % 3 === 0) {
        await operator.end('SIGKILL');
        operator = await lab.startOperator({ args: LEASE });
      } else {
        await node.applier().end('SIGKILL');
        await node.startApplier();
      }
    }
    end.abort();
    await stream;

    const { plan, values } = await wanted();
    const driver = createDriver({
      exec: node.world.exec,
      clock: systemClock,
      backend: 'nft',
      log: silentLog,
    });
    const tables = FAMILIES.map(family => renderFamily(plan, values, family));
    let last: unknown;
    await waitFor(
      async () => {
        const { families } = await driver.diff(tables);
        last = families;
        return Object.values(families).every(
          ({ differences, error }) => differences.length === 0 && error === undefined,
        )
          ? true
          : undefined;
      },
      {
        what: 'the kernel to be as wanted',
        limitMs: 30_000,
        intervalMs: 200,
        detail: () => JSON.stringify(last),
      },
    );
    const judge = decider(plan, { values });
    for (const source of SOURCES) {
      for (const destination of DESTINATIONS) {
        const [from, to] = [parseAddress(source), parseAddress(destination)];
        if (!from.ok || !to.ok) throw new Error('an address of this test does not parse');
        const packet = {
          source: from.value,
          destination: to.value,
          protocol: 'UDP',
          destinationPort: 443,
          outInterface: 'eth0',
          mark: 0,
        } as const;
        const decision = judge(packet);
        const address = { Masquerade: node.address[4], SNAT: '198.51.100.7', Preserve: source, None: source }[
          decision.action
        ];
        expect({ source, destination, seen: await node.seen({ source, destination }) }).toEqual({
          source,
          destination,
          seen: address,
        });
      }
    }
  });
});
