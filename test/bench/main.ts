// The benchmark: runs its parts one after the other, each in a process of its own with private network and mount
// namespaces, prints one table and writes the same as JSON.
import { mkdir, readlink, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { text } from 'node:stream/consumers';
import { parseArgs } from 'node:util';
import { inNewNamespaces, start } from '../../src/demo/children.ts';
import { BACKENDS, type Backend } from '../../src/kernel/backend.ts';
import { PART_NAMES, type PartName, type Row, tableOf } from './result.ts';
import { aboutMachine, type Machine } from './run.ts';
import { check } from './check.ts';
import { exemptions } from './exemptions.ts';
import { plan } from './plan.ts';
import { policies } from './policies.ts';
import { firstApply, oneMore } from './sets.ts';
import { FULL, type Options, type Part, QUICK } from './options.ts';

const PARTS: Readonly<Record<PartName, Part>> = {
  exemptions,
  policies,
  'one-more': oneMore,
  'first-apply': firstApply,
  check,
  plan,
};

const HELP = `Usage: node dist/bench.js [options]

  --quick        a short form, to see that it works; its numbers are not to be judged by
  --only NAME    one part: ${PART_NAMES.join(', ')}
  --output FILE  where the JSON goes (default .cache/bench.json)
  --check        exit 1 when a goal is missed

Needs root, for the network namespaces in which everything happens; the machine's own network is not touched. Exit codes: 0 done, 1 a goal was missed (with --check), 2 something broke.
`;

interface Arguments {
  readonly quick: boolean;
  readonly check: boolean;
  readonly help: boolean;
  readonly only: readonly PartName[];
  readonly output: string;
  /** Of a child of ours: the part and the backend that it is to measure, and the namespace that it must not be in. */
  readonly part?: PartName;
  readonly backend: Backend;
  readonly outside: string;
}

function readArguments(argv: readonly string[]): Arguments {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      quick: { type: 'boolean', default: false },
      check: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
      only: { type: 'string' },
      output: { type: 'string', default: '.cache/bench.json' },
      part: { type: 'string' },
      backend: { type: 'string', default: 'nft' },
      outside: { type: 'string', default: '' },
    },
  });
  const { only, part, backend, ...rest } = values;
  return {
    ...rest,
    only: only === undefined ? PART_NAMES : [partName(only)],
    ...(part === undefined ? {} : { part: partName(part) }),
    backend: backend === 'legacy' ? 'legacy' : 'nft',
  };
}

function partName(name: string): PartName {
  const found = PART_NAMES.find(known => known === name);
  if (found === undefined) throw new Error(`--only: ${name} is none of ${PART_NAMES.join(', ')}`);
  return found;
}

/** What a child prints. */
interface Outcome {
  readonly machine: Machine;
  readonly rows: readonly Row[];
}

const networkNamespace = (): Promise<string> => readlink('/proc/self/ns/net');

/** In the child: measures one part and prints the outcome. */
async function measurePart(name: PartName, args: Arguments, signal: AbortSignal): Promise<void> {
  if ((await networkNamespace()) === args.outside || args.outside === '') {
    throw new Error('refused: not in a network namespace of its own');
  }
  const options: Options = { ...(args.quick ? QUICK : FULL), backend: args.backend, signal };
  const outcome: Outcome = { rows: await PARTS[name](options), machine: await aboutMachine(signal) };
  process.stdout.write(JSON.stringify(outcome));
}

/** In the parent: runs the child for one part in new namespaces. */
async function runPart(name: PartName, backend: Backend, quick: boolean): Promise<Outcome> {
  const child = start(
    inNewNamespaces([
      process.execPath,
      import.meta.filename,
      '--part',
      name,
      '--backend',
      backend,
      '--outside',
      await networkNamespace(),
      ...(quick ? ['--quick'] : []),
    ]),
    process.env,
  );
  const ended = new Promise<number | null>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  child.stderr.pipe(process.stderr, { end: false });
  const [output, code] = await Promise.all([text(child.stdout), ended]);
  if (code !== 0) throw new Error(`${name} (${backend}) ended with exit code ${code}`);
  return JSON.parse(output) as Outcome;
}

async function runAll(args: Arguments): Promise<number> {
  const outcomes: Outcome[] = [];
  for (const name of args.only) {
    // The planner knows no kernel.
    for (const backend of name === 'plan' ? BACKENDS.slice(0, 1) : BACKENDS) {
      process.stderr.write(`measuring ${name}${name === 'plan' ? '' : ` (${backend})`} …\n`);
      outcomes.push(await runPart(name, backend, args.quick));
    }
  }
  const rows = outcomes.flatMap(outcome => outcome.rows);
  const machine = outcomes[0]?.machine;
  process.stdout.write(`${tableOf(rows)}\n${JSON.stringify(machine)}\n`);
  await mkdir(dirname(args.output), { recursive: true });
  await writeFile(args.output, `${JSON.stringify({ quick: args.quick, machine, rows }, null, 2)}\n`);
  const missed = rows.filter(row => row.met === false).length;
  if (missed > 0) process.stdout.write(`${missed} goal${missed === 1 ? '' : 's'} missed\n`);
  return args.check && missed > 0 ? 1 : 0;
}

async function run(): Promise<number> {
  const args = readArguments(process.argv.slice(2));
  if (args.help) {
    process.stdout.write(HELP);
    return 0;
  }
  if (args.part === undefined) return runAll(args);
  const stop = new AbortController();
  for (const name of ['SIGTERM', 'SIGINT'] as const) {
    process.once(name, () => stop.abort(new Error(`stopped by ${name}`)));
  }
  await measurePart(args.part, args, stop.signal);
  return 0;
}

try {
  process.exitCode = await run();
} catch (error) {
  process.stderr.write(`error: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 2;
}
