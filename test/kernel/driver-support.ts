// What the tests of the driver on a real kernel share: a namespace, a driver in it, commands watched or spoiled on
// their way, and the kernel's state as text.
import { FAMILIES } from '../../src/cidr/address.ts';
import type { Backend } from '../../src/kernel/backend.ts';
import type { Clock } from '../../src/kernel/clock.ts';
import { createDriver, type Driver, type DriverOptions } from '../../src/kernel/driver.ts';
import type { Command, CommandResult, Exec } from '../../src/kernel/exec.ts';
import { silentLog } from '../../src/kernel/log.ts';
import type { DriverReport, FamilyReport } from '../../src/kernel/report.ts';
import { type Namespace, openNamespace } from './namespace.ts';

export interface Bench {
  readonly ns: Namespace;
  /** Every command that was run through it, in order. */
  readonly commands: Command[];
  readonly exec: Exec;
  /** Decides about each command instead of the real tools; undefined lets it through. */
  spoil: (
    command: Command,
    run: (command: Command) => Promise<CommandResult>,
  ) => Promise<CommandResult> | undefined;
  readonly clock: ManualClock;
  driver(options?: Partial<DriverOptions>): Driver;
  /** Every rule and set, both families: equal text for equal states. */
  dump(): Promise<string>;
}

export interface ManualClock extends Clock {
  forward(ms: number): void;
}

/** Time that only tests move; waiting for it is over at once. */
function manualClock(): ManualClock {
  let time = 1_000_000;
  return {
    now: () => time,
    forward: ms => void (time += ms),
    sleep: ms => {
      time += ms;
      return Promise.resolve();
    },
  };
}

export async function openBench(backend: Backend): Promise<Bench> {
  const ns = await openNamespace();
  const clock = manualClock();
  const commands: Command[] = [];
  const bench: Bench = {
    ns,
    commands,
    clock,
    spoil: () => undefined,
    exec: {
      run: (command, signal) => {
        commands.push(command);
        const run = (other: Command): Promise<CommandResult> => ns.exec.run(other, signal);
        return bench.spoil(command, run) ?? run(command);
      },
    },
    driver: options => createDriver({ exec: bench.exec, clock, backend, log: silentLog, ...options }),
    dump: async () => stateText(await ns.sh(`${saveScript(backend)}; ipset save`)),
  };
  return bench;
}

const saveScript = (backend: Backend): string =>
  FAMILIES.map(family => `echo ipv${family}; ip${family === 4 ? '' : '6'}tables-${backend}-save -t nat`).join(
    '; ',
  );

/** Without counters, dates and what a set's hash is about; members of a set sorted. */
function stateText(text: string): string {
  const lines = text
    .split('\n')
    .filter(line => line !== '' && !line.startsWith('#'))
    .map(line => line.replace(/ \[\d+:\d+\]$/, '').replace(/hashsize .* maxelem/, 'maxelem'))
    .map(line => line.replace(/ bucketsize .*/, ''));
  const members = lines.filter(line => /^(add|create) /.test(line)).sort();
  return [...lines.filter(line => !/^(add|create) /.test(line)), ...members].join('\n');
}

/** Whether the command writes: a restore whose input holds more than questions. */
export const isWrite = ({ args, stdin = '', tool }: Command): boolean =>
  !args.includes('--test') &&
  ((tool === 'ipset' && /^(?!save |list )./m.test(stdin)) ||
    (tool.endsWith('-restore') && /^(?!-S |\*nat$|COMMIT$)./m.test(stdin)));

export const writesOf = (bench: Bench): readonly Command[] => bench.commands.filter(isWrite);

export function ipv4(report: DriverReport): FamilyReport {
  const family = report.families.ipv4;
  if (family === undefined) throw new Error('the report has no part for IPv4');
  return family;
}
