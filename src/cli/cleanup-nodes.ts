// cleanup --all-nodes: the product off a cluster's nodes, before its programs go.
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { LEASE_NAME } from '../api/own-group.ts';
import type { Api } from '../cluster/api.ts';
import { fenced } from '../cluster/fence.ts';
import { refusedAnswer } from '../cluster/https.ts';
import { type Leadership, runLeading } from '../cluster/lease.ts';
import { limited } from '../cluster/rate-limit.ts';
import { systemClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import { removeEverywhere, type RemovalReport } from '../operator/removal.ts';
import { withApi, withNeed } from './cluster-objects.ts';
import type { CleanupOptions } from './cleanup.ts';
import { CommandError, EXIT, type ExitCode, type Io, json } from './io.ts';
import type { PodOptions } from './options.ts';

type Options = Pick<
  CleanupOptions,
  'namespace' | 'operatorDeployment' | 'timeLimit' | 'bestEffort' | 'output' | keyof PodOptions
>;

const RATE = { perSecond: 100, burst: 200 };

export async function cleanupNodes(options: Options, io: Io): Promise<ExitCode> {
  const report = await withApi(options, io, async https => {
    const api = limited(https, RATE, systemClock);
    await stopOperator(api, options, io);
    io.err('waiting until no operator writes any more\n');
    return leading(api, options, io, (leadership, signal) => {
      const parts = {
        api: fenced(api, () => leadership.isValid()),
        clock: systemClock,
        wallClock: () => new Date(),
        limitMs: options.timeLimit,
        onProgress: (done: number, nodes: number) =>
          io.err(`${done} of ${nodes} nodes hold nothing of ours\n`),
      };
      return removeEverywhere(parts, signal);
    });
  });
  io.out(options.output === 'json' ? json(report) : asText(report));
  return report.left.length === 0 || options.bestEffort ? EXIT.ok : EXIT.refused;
}

/** So that it brings nothing back when we give the Lease back. */
async function stopOperator(
  api: Api,
  { namespace, operatorDeployment: name }: Options,
  io: Io,
): Promise<void> {
  const folder = `/apis/apps/v1/namespaces/${encodeURIComponent(namespace)}/deployments`;
  const request = {
    method: 'PATCH',
    path: `${folder}/${encodeURIComponent(name)}/scale`,
    body: { spec: { replicas: 0 } },
    contentType: 'application/merge-patch+json',
  } as const;
  const answer = await api.request(request, io.signal);
  if (answer.status === 404) {
    io.err(
      `warning: there is no Deployment ${namespace}/${name}; an operator that runs elsewhere brings everything back\n`,
    );
  } else if (answer.status !== 200) {
    throw withNeed(refusedAnswer(request, answer), 'patch', 'deployments/scale.apps');
  } else {
    io.err(`operator ${namespace}/${name} is scaled to 0; kubectl scale brings it back\n`);
  }
}

/** Works under the operator's Lease, which it gives back in the end. */
async function leading<T>(
  api: Api,
  { namespace, timeLimit }: Options,
  io: Io,
  work: (leadership: Leadership, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const over = new AbortController();
  const stop = AbortSignal.any([io.signal, over.signal]);
  let result: Promise<T> | undefined;
  const late = setTimeout(() => {
    if (result === undefined) over.abort();
  }, timeLimit);
  await runLeading(
    {
      api,
      namespace,
      name: LEASE_NAME,
      identity: `cleanup-${hostname()}-${randomBytes(4).toString('hex')}`,
      clock: systemClock,
      wallClock: () => new Date(),
      log: silentLog,
      async onLeading(leadership) {
        const signal = AbortSignal.any([io.signal, leadership.signal]);
        result ??= work(leadership, signal).finally(() => over.abort());
        // Who asked for it is told below.
        await result.catch(() => {});
      },
    },
    stop,
  );
  clearTimeout(late);
  if (result !== undefined) return result;
  io.signal.throwIfAborted();
  throw new CommandError(
    `the Lease ${namespace}/${LEASE_NAME} was not to be had within ${timeLimit / 1000} s: another operator leads, or this account may not write it`,
  );
}

function asText({ removed, left }: RemovalReport): string {
  const nodes = (count: number): string => `${count} ${count === 1 ? 'node' : 'nodes'}`;
  const lines = [`nothing of ours is left on ${nodes(removed.length)}`];
  if (left.length > 0) {
    lines.push(
      `not cleaned: ${nodes(left.length)}; a restart clears a node, and so does natoutgoing cleanup on it`,
    );
    lines.push(...left.map(({ name, reason }) => `  ${name}: ${reason}`));
  }
  return `${lines.join('\n')}\n`;
}
