// Two versions at once, as every upgrade and every way back has them: a later program, whose plans have another schema
// version, beside this one. It is this program with another number in it, since there is no later one yet.
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Prober } from '../../src/demo/model.ts';
import { PLAN_SCHEMA_VERSION } from '../../src/planner/codec-readers.ts';
import { type BuiltCommand, buildForTest } from '../kernel/command.ts';
import { block, policy, pool } from '../kernel/scene.ts';
import { type Lab, type LabNode, type LabOperator, openLab } from './lab.ts';
import { waitFor } from './wait.ts';

const POD = '10.244.1.5';
const FAR = '8.8.8.8';
const KEPT = '9.9.9.9';
const LATER_SCHEMA = PLAN_SCHEMA_VERSION + 1;

/** This program, of a later version. */
async function buildLater(): Promise<BuiltCommand> {
  const built = await buildForTest();
  const folder = dirname(built.path);
  const now = `PLAN_SCHEMA_VERSION = ${PLAN_SCHEMA_VERSION};`;
  let edited = 0;
  for (const name of await readdir(folder, { recursive: true })) {
    if (!/\.m?js$/.test(name)) continue;
    const path = join(folder, name);
    const text = await readFile(path, 'utf8');
    if (!text.includes(now)) continue;
    edited += 1;
    await writeFile(path, text.replace(now, `PLAN_SCHEMA_VERSION = ${LATER_SCHEMA};`));
  }
  if (edited !== 1) throw new Error(`the schema version stands in ${edited} files of the program`);
  return built;
}

describe('a later version beside this one', () => {
  let lab: Lab;
  let later: BuiltCommand;
  let operator: LabOperator;
  let a: LabNode;
  let b: LabNode;
  let probers: readonly Prober[];
  const signal = new AbortController().signal;
  const keep = (cidr: string): object => policy('keep', [{ to: [block(cidr)], action: 'Preserve' }]);
  const probing = (node: LabNode): Promise<Prober> =>
    node.world.startProbing(
      [FAR, KEPT].map(destination => ({
        from: 'pod',
        source: POD,
        destination,
        protocol: 'udp',
        destinationPort: 443,
      })),
      { perSecond: 100 },
    );
  const says = async (node: LabNode, status: string, reason: string): Promise<void> => {
    let last: unknown;
    await waitFor(
      async () => {
        const object = (await lab.cluster.get('MasqNode', node.name)) as unknown as {
          readonly status?: {
            readonly conditions?: readonly { type: string; status: string; reason: string }[];
          };
        };
        last = object.status?.conditions;
        const ready = object.status?.conditions?.find(({ type }) => type === 'Ready');
        return ready?.status === status && ready.reason === reason ? true : undefined;
      },
      {
        what: `${node.name} to be Ready=${status} ${reason}`,
        limitMs: 30_000,
        detail: () => JSON.stringify(last),
      },
    );
  };
  const schemas = async (): Promise<readonly unknown[]> =>
    (await lab.cluster.list('MasqPlan')).map(
      object =>
        (object as unknown as { readonly spec: { readonly schemaVersion: number } }).spec.schemaVersion,
    );
  const replaceOperator = async (program?: BuiltCommand): Promise<void> => {
    await operator.end('SIGTERM');
    operator = await lab.startOperator(program === undefined ? {} : { program });
  };

  beforeAll(async () => {
    later = await buildLater();
    lab = await openLab({}, signal);
    operator = await lab.startOperator();
    a = await lab.addNode('worker-a');
    b = await lab.addNode('worker-b');
    await lab.cluster.apply(pool('main', '10.244.0.0/16'));
    await lab.cluster.apply(keep('9.9.9.0/24'));
    for (const node of [a, b]) {
      await node.sees({ source: POD, destination: FAR }, node.address[4]);
      await node.sees({ source: POD, destination: KEPT }, POD);
    }
    probers = [await probing(a), await probing(b)];
  });
  afterAll(async () => {
    await lab?.close();
    await later?.close();
  });

  it('a later operator takes over: appliers that do not know its plans keep the last good one and say so', async () => {
    await replaceOperator(later);
    for (const node of [a, b]) await says(node, 'False', 'PlanNotUnderstood');
    expect(await schemas()).toEqual([LATER_SCHEMA]);
  });

  it('a later applier follows, whatever this one left in the kernel and on disk', async () => {
    await b.applier().end('SIGTERM');
    await b.startApplier([], later);
    await says(b, 'True', 'Programmed');
    await lab.cluster.apply(keep('9.9.0.0/16'));
    await b.sees({ source: POD, destination: '9.9.8.8' }, POD);
    expect(await a.seen({ source: POD, destination: '9.9.8.8' })).toBe(a.address[4]);
  });

  it('back again: this operator reads what the later one wrote, and its own appliers follow', async () => {
    await replaceOperator();
    await a.sees({ source: POD, destination: '9.9.8.8' }, POD);
    await says(a, 'True', 'Programmed');
    await says(b, 'False', 'PlanNotUnderstood');
    expect(await schemas()).toEqual([PLAN_SCHEMA_VERSION]);
    await b.applier().end('SIGTERM');
    await b.startApplier();
    await says(b, 'True', 'Programmed');
    await lab.cluster.apply(keep('9.9.9.0/24'));
    for (const node of [a, b]) await node.sees({ source: POD, destination: '9.9.8.8' }, node.address[4]);
  });

  it('no packet went wrong all the while', async () => {
    for (const [i, node] of [a, b].entries()) {
      const [masqueraded, kept] = (await probers[i]?.stop()) ?? [];
      expect([...(masqueraded?.seen.keys() ?? [])]).toEqual([node.address[4]]);
      expect([...(kept?.seen.keys() ?? [])]).toEqual([POD]);
      expect(masqueraded?.sent).toBeGreaterThan(100);
    }
  });
});
