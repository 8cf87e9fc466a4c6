// Two processes and one Lease on a real API server: whoever is stopped, or killed, writes nothing after the other began.
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type ApiServer, startApiServer } from './api-server.ts';
import { installThings, pathOf } from './cluster-things.ts';
import { follow, type Program } from './program.ts';
import { waitFor } from './wait.ts';

/** In milliseconds: a fifth of the real ones. */
const TIMES = { lease: 3_000, renew: 2_000, retry: 400 };

/** Leads when it can, and while it does writes as fast as it can; says when it began and ended to be the leader. */
const CONTENDER = `
  import { setTimeout as sleep } from 'node:timers/promises';
  import { applyObject } from '../../src/cluster/apply.ts';
  import { fenced } from '../../src/cluster/fence.ts';
  import { createHttpsApi } from '../../src/cluster/https.ts';
  import { kubeconfigEndpoint } from '../../src/cluster/kubeconfig.ts';
  import { runLeading } from '../../src/cluster/lease.ts';
  import { systemClock } from '../../src/kernel/clock.ts';

  const [file, identity, collection] = process.argv.slice(2);
  const say = (msg, more = {}) => console.log(JSON.stringify({ msg, at: Number(process.hrtime.bigint() / 1000n) / 1000, ...more }));
  const log = { info: () => {}, warn: (fields, message) => say('warning', { message, ...fields }) };
  const https = createHttpsApi(kubeconfigEndpoint({ file }));
  let leadership;
  const writing = fenced(https, () => leadership?.isValid() === true);
  const write = async mine => {
    for (let n = 0; mine.isValid(); n++) {
      const body = { apiVersion: 'example.org/v1', kind: 'Written', metadata: { name: 'log' }, spec: { identity, n } };
      const applied = { collection, name: 'log', fieldManager: 'test', body };
      try {
        const { result, object } = await applyObject(writing, applied, mine.signal);
        say('wrote', { result, version: Number(object?.metadata.resourceVersion) });
      } catch (error) {
        say('did not write', { why: String(error) });
      }
      await sleep(5);
    }
    say('ended');
  };
  const stop = new AbortController();
  process.on('SIGTERM', () => stop.abort(new Error('SIGTERM')));
  say('waits');
  await runLeading({
    api: https, namespace: 'default', name: 'test', identity, clock: systemClock, wallClock: () => new Date(), log,
    times: ${JSON.stringify(TIMES)},
    onLeading(gained) {
      leadership = gained;
      say('leads');
      return write(gained);
    },
  }, stop.signal);
  https.close();
  say('bye');`;

describe('a lease on a real API server', () => {
  let server: ApiServer;
  let bundle: string;
  const programs: Program[] = [];

  beforeAll(async () => {
    server = await startApiServer({}, new AbortController().signal);
    await installThings(server, 'writtens');
    bundle = await mkdtemp(join(tmpdir(), 'natoutgoing-lease-'));
    await build({
      stdin: { contents: CONTENDER, resolveDir: fileURLToPath(new URL('.', import.meta.url)), loader: 'ts' },
      outfile: join(bundle, 'main.mjs'),
      bundle: true,
      platform: 'node',
      format: 'esm',
      logLevel: 'silent',
      banner: {
        js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);",
      },
    });
  });
  afterEach(async () => {
    for (const program of programs.splice(0)) await program.end('SIGKILL');
  });
  afterAll(async () => {
    await server?.close();
    await rm(bundle, { recursive: true, force: true });
  });

  const start = async (identity: string): Promise<Program> => {
    const argv = [join(bundle, 'main.mjs'), server.kubeconfig, identity, pathOf('writtens')];
    const child = spawn('setpriv', ['--pdeathsig', 'KILL', process.execPath, ...argv], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const program = follow(child, identity);
    programs.push(program);
    await program.logged('waits', 20_000);
    return program;
  };
  const timesOf = (program: Program, msg: string): readonly number[] =>
    program.log().flatMap(line => (line['msg'] === msg ? [Number(line['at'])] : []));
  const leadsAgain = (program: Program, times: number, limitMs: number): Promise<true> =>
    waitFor(() => (timesOf(program, 'leads').length >= times ? true : undefined), {
      what: `it to lead for the ${times}. time`,
      limitMs,
      detail: () => JSON.stringify(program.log().slice(-10)),
    });
  /** Who wrote, in the order in which the server took it, neighbours of one name folded. */
  const turns = (...all: readonly Program[]): readonly string[] => {
    const writes = all.flatMap((program, i) =>
      program
        .log()
        .filter(({ msg, result }) => msg === 'wrote' && result === 'done')
        .map(({ version }) => ({ version: Number(version), who: 'abc'[i] ?? '' })),
    );
    const order = writes.toSorted((x, y) => x.version - y.version).map(({ who }) => who);
    return order.filter((who, i) => who !== order[i - 1]);
  };
  const writesOn = async (program: Program): Promise<void> => {
    const before = timesOf(program, 'wrote').length;
    await waitFor(() => (timesOf(program, 'wrote').length > before + 5 ? true : undefined), {
      what: 'it to write on',
      limitMs: 5_000,
    });
  };

  it('passes on when its holder is stopped (SIGSTOP), who writes nothing when it goes on', async () => {
    const a = await start('a');
    await leadsAgain(a, 1, 10_000);
    const b = await start('b');
    for (let round = 0; round < 3; round++) {
      await writesOn(a);
      a.signal('SIGSTOP');
      await leadsAgain(b, round + 1, 15_000);
      await writesOn(b);
      a.signal('SIGCONT');
      await waitFor(() => (timesOf(a, 'ended').length === round + 1 ? true : undefined), {
        what: 'the stopped one to notice',
        limitMs: 5_000,
      });
      await writesOn(b);
      b.signal('SIGSTOP');
      await leadsAgain(a, round + 2, 15_000);
      await writesOn(a);
      b.signal('SIGCONT');
      await waitFor(() => (timesOf(b, 'ended').length === round + 1 ? true : undefined), {
        what: 'the stopped one to notice',
        limitMs: 5_000,
      });
    }
    await writesOn(a);
    expect(turns(a, b)).toEqual(['a', 'b', 'a', 'b', 'a', 'b', 'a']);
  });

  it('passes on after its time when its holder is killed, and at once when it is given back', async () => {
    await removeLease(server);
    const a = await start('a');
    await leadsAgain(a, 1, 10_000);
    const b = await start('b');
    await writesOn(a);
    await a.end('SIGKILL');
    const killed = nowMs();
    await leadsAgain(b, 1, 15_000);
    expect((timesOf(b, 'leads')[0] ?? 0) - killed).toBeGreaterThan(TIMES.lease - TIMES.retry - 100);
    const c = await start('c');
    await writesOn(b);
    await b.end('SIGTERM');
    const ended = timesOf(b, 'ended')[0] ?? 0;
    await leadsAgain(c, 1, 5_000);
    expect((timesOf(c, 'leads')[0] ?? 0) - ended).toBeLessThan(TIMES.retry + 1_000);
    expect(timesOf(b, 'bye').length).toBe(1);
    await writesOn(c);
    expect(turns(a, b, c)).toEqual(['a', 'b', 'c']);
  });

  it('ends in time when the API server goes away, and is got again when it is back', async () => {
    await removeLease(server);
    const a = await start('a');
    await leadsAgain(a, 1, 10_000);
    await writesOn(a);
    await server.stop();
    const gone = nowMs();
    await waitFor(() => timesOf(a, 'ended')[0], { what: 'leadership to end', limitMs: 10_000 });
    expect((timesOf(a, 'ended')[0] ?? 0) - gone).toBeLessThan(TIMES.renew + 500);
    await server.start();
    await leadsAgain(a, 2, 20_000);
    await writesOn(a);
  });
});

/** By the clock that the programs tell: it counts since the machine started. */
const nowMs = (): number => Number(process.hrtime.bigint() / 1000n) / 1000;

/** Nobody holds it, so that the next test need not wait for a dead one. */
async function removeLease(server: ApiServer): Promise<void> {
  const { status } = await server.client.request(
    'DELETE',
    '/apis/coordination.k8s.io/v1/namespaces/default/leases/test',
  );
  expect([200, 404]).toContain(status);
}
