// An applier as it runs, over an API and a kernel that are played: for what a real one cannot be made to do on demand.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import { type ApplierParts, runApplier } from '../../src/applier/program.ts';
import type { NodeStatus } from '../../src/applier/status.ts';
import { REMOVE_ANNOTATION } from '../../src/api/own-group.ts';
import type { ApiAnswer, ApiRequest, RawObject } from '../../src/cluster/api.ts';
import type { CommandResult, Exec } from '../../src/kernel/exec.ts';
import { masqNodeSpec, type MasqPlanSpec, planObjects } from '../../src/planner/plan-objects.ts';
import type { NodeValues, Plan } from '../../src/planner/plan.ts';
import { planOf } from '../oracle/hand-made.ts';
import { event, fakeApi, listOf, refusal, virtualClock, type VirtualClock } from './cluster-fake.ts';
import { fakeKernel } from './kernel-fake.ts';

export const failedCommand = (stderr: string, code = 1): CommandResult => ({
  code,
  stdout: '',
  stderr,
  timedOut: false,
});

/** A plan that preserves the pods' addresses to these networks. */
export const planTo = (...nets: readonly string[]): Plan =>
  planOf({
    sets: { pods: ['10.244.0.0/16'], far: nets },
    policies: [{ name: 'p', rules: [{ to: 'far', action: 'Preserve' }] }],
  });

export interface Faults {
  /** What a tool says instead of doing its work. */
  tool?: (tool: string, stdin: string) => CommandResult | undefined;
  /** What the API says instead. */
  api?: (request: ApiRequest) => ApiAnswer | undefined;
}

export interface SaidStatus extends NodeStatus {
  /** Of the virtual clock. */
  readonly at: number;
}

export interface World {
  readonly clock: VirtualClock;
  readonly stateFile: string;
  readonly statuses: readonly SaidStatus[];
  readonly messages: readonly string[];
  /** The IPv4 kernel, as text. */
  dump(): string;
  /** Makes or changes the MasqNode. */
  pointAt(plan: string, values?: NodeValues): void;
  /** Asks that the node holds nothing of ours. */
  askRemoval(): void;
  removeNode(): void;
  write(name: string, plan: Plan, edit?: (spec: MasqPlanSpec) => MasqPlanSpec): void;
  /** Moves time by short steps until the last status is so. */
  until(is: (status: SaidStatus) => boolean): Promise<SaidStatus>;
  /** Moves time, and lets what is real (files, timers) come after. */
  pass(ms: number): Promise<void>;
  /** Ends the applier, and waits until it has. */
  end(): Promise<void>;
}

export const readyOf = (
  status: NodeStatus | undefined,
): { readonly status: string; readonly reason: string } =>
  status?.conditions.find(({ type }) => type === 'Ready') ?? { status: 'none', reason: 'none' };

const REAL_MS = 3;
const STEP_MS = 50;
const UNTIL_LIMIT_MS = 60_000;

export async function openApplier(faults: Faults = {}): Promise<World> {
  const kernels = { 4: fakeKernel(), 6: fakeKernel() };
  const clock = virtualClock();
  const statuses: SaidStatus[] = [];
  const messages: string[] = [];
  const plans = new Map<string, RawObject>();
  let node: RawObject | undefined;
  let version = 1;
  const exec: Exec = {
    async run(command, signal) {
      const bad = faults.tool?.(command.tool, command.stdin ?? '');
      if (bad !== undefined) return bad;
      if (command.tool === 'ipset') await kernels[6].exec.run(command, signal);
      return kernels[command.tool.startsWith('ip6') ? 6 : 4].exec.run(command, signal);
    },
  };
  const tell = (part: string, type: string, object: unknown): void => {
    for (const watch of api.watches) {
      if (decodeURIComponent(watch.path).includes(part) && !watch.over) watch.send(event(type, object));
    }
  };
  const takeStatus = (body: unknown): ApiAnswer => {
    const { metadata, status } = body as { metadata: { resourceVersion?: string }; status: NodeStatus };
    if (node === undefined) return refusal(404, 'NotFound');
    if (metadata.resourceVersion !== node.metadata.resourceVersion) return refusal(409, 'Conflict');
    statuses.push({ at: clock.now(), ...status });
    version += 1;
    node = { ...node, metadata: { ...node.metadata, resourceVersion: `${version}` }, status };
    tell('/masqnodes', 'MODIFIED', structuredClone(node));
    return { status: 200, body: node };
  };
  const api = fakeApi({
    answer(request) {
      const said = faults.api?.(request);
      if (said !== undefined) return said;
      const path = decodeURIComponent(request.path);
      if (request.method === 'PATCH') return takeStatus(request.body);
      if (path.includes('/events')) return { status: 201, body: { metadata: { name: 'e' } } };
      if (path.includes('/masqnodes')) return listOf(version, node === undefined ? [] : [node]);
      const name = /plan=([a-z0-9-]+)/.exec(path)?.[1];
      return listOf(
        version,
        [...plans.values()].filter(({ spec }) => (spec as MasqPlanSpec).plan === name),
      );
    },
  });
  const folder = await mkdtemp(join(tmpdir(), 'natoutgoing-applier-'));
  const stateFile = join(folder, 'applied.json');
  const stop = new AbortController();
  const log = pino(
    { level: 'info' },
    { write: line => void messages.push((JSON.parse(line) as { msg: string }).msg) },
  );
  const parts: ApplierParts = {
    api,
    stateFile,
    exec,
    clock,
    log,
    nodeName: 'n1',
    backend: 'nft',
    healthAddress: '',
    wallClock: () => new Date(1_800_000_000_000 + clock.now()),
    random: () => 0.5,
  };
  const running = runApplier(parts, stop.signal);
  const pass = async (ms: number): Promise<void> => {
    await clock.advance(ms);
    await sleep(REAL_MS);
  };
  return {
    clock,
    stateFile,
    statuses,
    messages,
    pass,
    dump: () => kernels[4].dump(),
    pointAt(plan, values = new Map()) {
      version += 1;
      const generation = Number(node?.metadata.generation ?? 0) + 1;
      const type = node === undefined ? 'ADDED' : 'MODIFIED';
      const metadata = { name: 'n1', uid: 'u1', generation, resourceVersion: `${version}` };
      node = { ...node, metadata, spec: masqNodeSpec(plan, values) };
      tell('/masqnodes', type, structuredClone(node));
    },
    askRemoval() {
      version += 1;
      const metadata = {
        ...node?.metadata,
        name: 'n1',
        resourceVersion: `${version}`,
        annotations: { [REMOVE_ANNOTATION]: 'now' },
      };
      node = { ...node, metadata };
      tell('/masqnodes', 'MODIFIED', structuredClone(node));
    },
    removeNode() {
      version += 1;
      tell('/masqnodes', 'DELETED', {
        ...node,
        metadata: { ...node?.metadata, resourceVersion: `${version}` },
      });
      node = undefined;
    },
    write(name, plan, edit = spec => spec) {
      for (const spec of planObjects(plan, name)) {
        version += 1;
        const key = spec.part === 0 ? name : `${name}-${spec.part}`;
        const generation = Number(plans.get(key)?.metadata.generation ?? 0) + 1;
        const metadata = { name: key, uid: key, generation, resourceVersion: `${version}` };
        const object = { metadata, spec: edit(structuredClone(spec)) };
        plans.set(key, object);
        tell(`plan=${name}`, 'MODIFIED', object);
      }
    },
    async until(is) {
      for (let ms = 0; ms < UNTIL_LIMIT_MS; ms += STEP_MS) {
        const last = statuses.at(-1);
        if (last !== undefined && is(last)) return last;
        await pass(STEP_MS);
      }
      throw new Error(`the last status is ${JSON.stringify(statuses.at(-1))}`);
    },
    async end() {
      stop.abort(new Error('the test ends'));
      await running;
      await rm(folder, { recursive: true });
    },
  };
}
