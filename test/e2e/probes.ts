// What pods on every node send without pause, and what the host far outside saw of it.
import { readFile } from 'node:fs/promises';
import { expect } from 'vitest';
import { waitFor } from '../cluster/wait.ts';
import { IMAGE } from './images.ts';
import type { Heard, NodesLab } from './lab.ts';

export type Family = 4 | 6;

/** The host far outside. */
export const FAR = { 4: '198.51.100.200', 6: '2001:db8:2::200' } as const;
const PROTOCOLS = ['udp', 'tcp'] as const;
/** So many of each kind in a row must have one source for it to be taken as seen. */
const IN_A_ROW = 5;

export const nodeAddress = (n: number, family: Family): string =>
  family === 4 ? `203.0.113.1${n}` : `2001:db8:1::1${n}`;

/** Starts a pod on every node, and waits until they run. */
export async function startSpeakers(lab: NodesLab): Promise<void> {
  const script = await readFile(new URL('./lab/speak.cjs', import.meta.url), 'utf8');
  const labels = { app: 'speaker' };
  const objects = [
    { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'speaker' }, data: { 'speak.cjs': script } },
    {
      apiVersion: 'apps/v1',
      kind: 'DaemonSet',
      metadata: { name: 'speaker' },
      spec: {
        selector: { matchLabels: labels },
        template: {
          metadata: { labels },
          spec: {
            terminationGracePeriodSeconds: 1,
            containers: [
              {
                name: 'speaker',
                image: `${IMAGE.repository}:${IMAGE.tag}`,
                imagePullPolicy: 'Never',
                command: ['node', '/scripts/speak.cjs', '$(NODE)', FAR[4], FAR[6]],
                env: [{ name: 'NODE', valueFrom: { fieldRef: { fieldPath: 'spec.nodeName' } } }],
                volumeMounts: [{ name: 'scripts', mountPath: '/scripts' }],
              },
            ],
            volumes: [{ name: 'scripts', configMap: { name: 'speaker' } }],
          },
        },
      },
    },
  ];
  await lab.apply(objects);
  await lab.kubectl('rollout', 'status', 'daemonset/speaker', '--timeout=120s');
}

/** The addresses of the pod that speaks on a node. */
export async function speakerAddresses(lab: NodesLab, n: number): Promise<Readonly<Record<Family, string>>> {
  const path = 'jsonpath={.items[0].status.podIPs[*].ip}';
  const where = ['-l', 'app=speaker', '--field-selector', `spec.nodeName=node-${n}`];
  const [v4 = '', v6 = ''] = (await lab.kubectl('get', 'pods', ...where, '-o', path)).split(' ');
  return { 4: v4, 6: v6 };
}

/** Waits until what leaves node N comes from this source, by both protocols. */
export async function sees(lab: NodesLab, n: number, family: Family, source: string): Promise<void> {
  let last: readonly string[] = [];
  const from = (await lab.heard()).length;
  const look = async (): Promise<true | undefined> => {
    const heard = (await lab.heard()).slice(from);
    const tails = PROTOCOLS.map(protocol => heard.filter(it => is(it, n, family, protocol)).slice(-IN_A_ROW));
    last = tails.flat().map(it => `${it.protocol} ${it.source}`);
    const seen = tails.every(tail => tail.length === IN_A_ROW && tail.every(it => it.source === source));
    return seen ? true : undefined;
  };
  await waitFor(look, {
    what: `node-${n} to send from ${source}`,
    limitMs: 60_000,
    detail: async () => `last: ${last.join(', ')}\n${await lab.logs()}`,
  });
}

/** Runs it, and asserts that meanwhile and right after everything from these nodes had the sources that are named. */
export async function nothingElse(
  lab: NodesLab,
  sources: readonly { readonly n: number; readonly family: Family; readonly source: string }[],
  during: () => Promise<void>,
): Promise<void> {
  const start = (await lab.heard()).length;
  await during();
  const end = (await lab.heard()).length;
  const kinds = sources.flatMap(it => PROTOCOLS.map(protocol => ({ ...it, protocol })));
  const heardSince = async (from: number): Promise<readonly (readonly Heard[])[]> => {
    const heard = (await lab.heard()).slice(from);
    return kinds.map(({ n, family, protocol }) => heard.filter(it => is(it, n, family, protocol)));
  };
  await waitFor(
    async () => ((await heardSince(end)).every(own => own.length >= IN_A_ROW) ? true : undefined),
    {
      what: 'every flow to go on',
      limitMs: 30_000,
      detail: () => lab.logs(),
    },
  );
  for (const [index, own] of (await heardSince(start)).entries())
    expect(own.filter(it => it.source !== kinds[index]?.source)).toEqual([]);
}

const is = ({ protocol, payload }: Heard, n: number, family: Family, wanted: string): boolean =>
  protocol === wanted && payload.startsWith(`node-${n}.${family}.`);
