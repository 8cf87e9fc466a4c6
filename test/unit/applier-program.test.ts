// The applier against what goes wrong around it: nothing wrong is said, nothing is forgotten, nothing is done twice.
import { readFile } from 'node:fs/promises';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { watchBackend } from '../../src/applier/backend-watch.ts';
import { planOf } from '../oracle/hand-made.ts';
import { address } from '../oracle/universe.ts';
import { failedCommand, type Faults, openApplier, planTo, readyOf, type World } from './applier-world.ts';
import { refusal, settle, virtualClock } from './cluster-fake.ts';

/** Milliseconds in which a busy disk has written a small file. */
const DISK_LIMIT = 10_000;

/** A restore that writes, not one that only lists. */
const writes = (tool: string, stdin: string): boolean =>
  tool.endsWith('-restore') && !stdin.includes('\n-S ');

describe('an applier', () => {
  let world: World;
  const open = async (faults: Faults = {}): Promise<void> => {
    world = await openApplier(faults);
    world.write('plan-a', planTo('8.8.0.0/16'));
    world.pointAt('plan-a');
  };
  const isReady = (): Promise<unknown> => world.until(status => readyOf(status).status === 'True');
  afterEach(() => world?.end());

  it('notes the plan that a later look brought into the kernel', async () => {
    const faults: Faults = {
      tool: (tool, stdin) => (writes(tool, stdin) ? failedCommand('something broke') : undefined),
    };
    await open(faults);
    await world.until(status => readyOf(status).reason === 'ProgrammingFailed');
    delete faults.tool;
    await isReady();
    await world.pass(50);
    // The disk does not keep to the clock of the test.
    await vi.waitFor(async () => {
      const noted: unknown = JSON.parse(await readFile(world.stateFile, 'utf8'));
      expect(noted).toMatchObject({ origin: { name: 'plan-a' } });
    }, DISK_LIMIT);
  });

  it('says what cannot be removed, tries again until nothing is left, and then looks after nothing', async () => {
    const faults: Faults = {};
    await open(faults);
    const before = world.dump();
    await isReady();
    await world.pass(50);
    faults.tool = (tool, stdin) =>
      tool === 'ipset' && stdin.includes('destroy')
        ? failedCommand('in use by a kernel component')
        : undefined;
    world.askRemoval();
    await world.until(status => readyOf(status).reason === 'RemovalFailed');
    expect(world.statuses.at(-1)?.conditions.find(({ type }) => type === 'Ready')).toMatchObject({
      message: expect.stringMatching(/ set masq4-.*in use by a kernel component/) as unknown,
    });
    delete faults.tool;
    await world.until(status => readyOf(status).reason === 'Removed');
    expect(world.dump()).toBe(before);
    expect(world.statuses.at(-1)).toMatchObject({ families: {}, observedGeneration: 1 });
    expect(world.statuses.at(-1)?.plan).toBeUndefined();
    await expect(readFile(world.stateFile)).rejects.toThrow('ENOENT');
    // A change of the plan means nothing until the node is pointed at one anew.
    world.write('plan-a', planTo('9.9.0.0/16'));
    await world.pass(60_000);
    expect(world.dump()).toBe(before);
    world.removeNode();
    await world.pass(1_000);
    world.pointAt('plan-a');
    await isReady();
    expect(world.dump()).toContain('9.9.0.0/16');
  });

  it('calls a family that the kernel lacks and nobody needs unavailable', async () => {
    const lacks = "ip6tables v1.8.9: can't initialize ip6tables table `nat': Table does not exist";
    await open({ tool: tool => (tool.startsWith('ip6') ? failedCommand(lacks, 3) : undefined) });
    await isReady();
    expect(world.statuses.at(-1)?.families).toMatchObject({
      ipv4: { state: 'Programmed' },
      ipv6: { state: 'Unavailable' },
    });
  });

  it('says of a plan that is not understood that the last one stays, and first of the next that it is in force', async () => {
    await open();
    await isReady();
    const kernel = world.dump();
    world.write('plan-a', planTo('9.9.0.0/16'), spec => ({ ...spec, schemaVersion: 2 }));
    await world.until(status => readyOf(status).reason === 'PlanNotUnderstood');
    expect(world.dump()).toBe(kernel);
    await world.pass(5_000);
    const before = world.statuses.length;
    const old = world.statuses.at(-1)?.contentHash;
    world.write('plan-a', planTo('9.9.0.0/16'));
    await isReady();
    expect(world.statuses[before]?.contentHash).not.toBe(old);
    expect(world.dump()).not.toBe(kernel);
  });

  it.each([
    [
      'that is not whole',
      'PlanIncomplete',
      (world: World) => world.write('plan-b', planTo('9.9.0.0/16'), spec => ({ ...spec, of: 2 })),
      {},
    ],
    [
      'that it may not read',
      'PlanUnreadable',
      () => {},
      { api: ({ path }: { path: string }) => (path.includes('plan-b') ? refusal(403) : undefined) },
    ],
  ])('tells of a plan %s after a few seconds, and keeps the one before', async (_, reason, write, faults) => {
    await open(faults);
    await isReady();
    await world.pass(2_000);
    const kernel = world.dump();
    write(world);
    world.pointAt('plan-b');
    await world.pass(4_000);
    expect(readyOf(world.statuses.at(-1)).reason).toBe('Programmed');
    await world.until(status => readyOf(status).reason === reason);
    expect(world.dump()).toBe(kernel);
  });

  it('does not call the node ready at a generation whose values are not in the kernel', async () => {
    const values = (text: string) => new Map([['annotation:k', { 4: address(text) }]]);
    const faults: Faults = {};
    world = await openApplier(faults);
    const rule = { to: 'far', action: 'SNAT', snat: { nodeValue: 'annotation:k' } } as const;
    const sets = { pods: ['10.244.0.0/16'], far: ['8.8.0.0/16'] };
    world.write('plan-a', planOf({ sets, policies: [{ name: 'p', rules: [rule] }] }));
    world.pointAt('plan-a', values('198.51.100.7'));
    await isReady();
    await world.pass(2_000);
    faults.tool = (tool, stdin) => (writes(tool, stdin) ? failedCommand('something broke') : undefined);
    world.pointAt('plan-a', values('198.51.100.8'));
    await world.until(status => readyOf(status).reason === 'ProgrammingFailed');
    expect(
      world.statuses.some(status => status.observedGeneration === 2 && readyOf(status).status === 'True'),
    ).toBe(false);
    delete faults.tool;
    await world.until(status => status.observedGeneration === 2 && readyOf(status).status === 'True');
  });

  it('leaves the rules when its MasqNode goes, and says so once', async () => {
    await open();
    await isReady();
    const kernel = world.dump();
    world.removeNode();
    await world.pass(60_000);
    expect(world.dump()).toBe(kernel);
    expect(world.messages.filter(message => message.includes('there is no MasqNode'))).toHaveLength(1);
  });

  it('gives its sign of life soon after the API takes it again', async () => {
    const faults: Faults = {};
    await open(faults);
    await isReady();
    const before = world.statuses.length;
    faults.api = ({ method }) => (method === 'PATCH' ? refusal(500) : undefined);
    for (let minute = 0; minute < 20; minute++) await world.pass(60_000);
    expect(world.statuses.length).toBe(before);
    delete faults.api;
    await world.pass(60_000);
    expect(world.statuses.length).toBeGreaterThan(before);
  });

  it('does nothing about its own status coming back', async () => {
    await open();
    await isReady();
    await world.pass(5_000);
    const wanted = world.messages.filter(message => message === 'plan wanted').length;
    await world.pass(2_000_000);
    expect(world.messages.filter(message => message === 'plan wanted').length).toBe(wanted);
  });
});

it('a backend that was chosen where no neighbour has one is no mismatch', async () => {
  const stop = new AbortController();
  const said: (string | undefined)[] = [];
  const missing = failedCommand('cat: /proc/net/ip_tables_names: No such file or directory');
  const none = failedCommand("iptables: chain `X' in table `nat' is incompatible, use 'nft' tool.");
  const exec = {
    run: ({ tool, args }: { tool: string; args: readonly string[] }) =>
      Promise.resolve(
        args.includes('--version')
          ? { code: 0, stdout: 'iptables v1.8.9', stderr: '', timedOut: false }
          : tool === 'cat'
            ? missing
            : none,
      ),
  };
  const watching = watchBackend(
    { backend: 'legacy', exec, clock: virtualClock() },
    why => void said.push(why),
    stop.signal,
  );
  await settle();
  await settle();
  stop.abort();
  await watching;
  expect(said).toEqual([undefined]);
});
