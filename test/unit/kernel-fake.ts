// A kernel in memory that understands the commands of the driver: sets with longest-prefix match, chains, atomic
// transactions, sets that cannot be destroyed while a rule looks into them. It lets a test look at every moment
// between two lines, which no real kernel does.
import type { Command, CommandResult, Exec } from '../../src/kernel/exec.ts';
import { wordsOf } from '../../src/kernel/printed-lines.ts';

export interface FakeSet {
  readonly type: string;
  readonly family: string;
  readonly maxelem: number;
  /** CIDR → nomatch. */
  readonly entries: Map<string, boolean>;
}

export interface FakeKernel {
  readonly exec: Exec;
  readonly sets: Map<string, FakeSet>;
  /** Chains of table nat: the text of each rule behind `-A CHAIN`. */
  chains: Map<string, readonly string[]>;
  /** Runs after each line of ipset and after each transaction; may throw to make the tool fail there. */
  afterEach: () => void;
  /** Every input that was given to a restore, in order. */
  readonly inputs: { readonly tool: string; readonly text: string }[];
  /** What happens to a packet in POSTROUTING. */
  verdict(source: number, destination: number): string;
  /** Everything that it holds, as text that is equal for equal states. */
  dump(): string;
}

class ToolError extends Error {}

export function fakeKernel(): FakeKernel {
  const kernel: FakeKernel = {
    sets: new Map(),
    chains: new Map([['POSTROUTING', []]]),
    inputs: [],
    afterEach: () => {},
    exec: { run: command => Promise.resolve(run(kernel, command)) },
    verdict: (source, destination) => walk(kernel, 'POSTROUTING', source, destination) ?? 'none',
    dump: () =>
      [
        ...[...kernel.sets].map(([name, { type, family, maxelem, entries }]) => {
          const members = [...entries].map(([cidr, nomatch]) => `${cidr} ${nomatch}`).sort();
          return JSON.stringify([name, type, family, maxelem, members]);
        }),
        ...[...kernel.chains].map(chain => JSON.stringify(chain)),
      ]
        .sort()
        .join('\n'),
  };
  return kernel;
}

const done = (code: number, stdout: string, stderr = ''): CommandResult => ({
  code,
  stdout,
  stderr,
  timedOut: false,
});

function run(kernel: FakeKernel, { tool, args, stdin = '' }: Command): CommandResult {
  if (args.includes('--version')) return done(tool.includes('legacy') ? 127 : 0, 'iptables (nf_tables)');
  try {
    if (tool === 'ipset') return done(0, ipset(kernel, args, stdin));
    if (tool.endsWith('-restore')) {
      const questions = questionsOf(stdin);
      if (questions !== undefined) return answers(kernel, questions);
      kernel.inputs.push({ tool, text: stdin });
      kernel.chains = transaction(kernel, stdin);
      kernel.afterEach();
      return done(0, '');
    }
    return done(0, list(kernel, args));
  } catch (error) {
    return done(1, '', (error as Error).message);
  }
}

/** The chains that a transaction only lists; undefined when it says more. */
function questionsOf(text: string): readonly string[] | undefined {
  const lines = text.trimEnd().split('\n').slice(1, -1);
  return lines.every(line => line.startsWith('-S ')) ? lines.map(line => line.slice(3)) : undefined;
}

/** As iptables-restore does: in their order, up to the first that cannot be listed, at which it fails. */
function answers(kernel: FakeKernel, chains: readonly string[]): CommandResult {
  let printed = '';
  for (const chain of chains) {
    try {
      printed += list(kernel, ['-S', chain]);
    } catch (error) {
      return done(1, printed, (error as Error).message);
    }
  }
  return done(0, printed);
}

const list = (kernel: FakeKernel, args: readonly string[]): string => {
  const chain = args[args.indexOf('-S') + 1];
  const names = chain === undefined ? [...kernel.chains.keys()] : [chain];
  return names
    .flatMap(name => {
      const rules = kernel.chains.get(name);
      if (rules === undefined)
        throw new ToolError(`chain \`${name}' in table \`nat' is incompatible, use 'nft' tool.`);
      const head = name === 'POSTROUTING' ? `-P ${name} ACCEPT` : `-N ${name}`;
      return [head, ...rules.map(rule => `-A ${name} ${rule}`)];
    })
    .map(line => `${line}\n`)
    .join('');
};

function ipset(kernel: FakeKernel, args: readonly string[], stdin: string): string {
  if (args[0] === 'list') return [...kernel.sets.keys()].join('\n');
  const lines = stdin.trimEnd().split('\n');
  if (!lines.every(line => line.startsWith('save '))) kernel.inputs.push({ tool: 'ipset', text: stdin });
  const output: string[] = [];
  lines.forEach((line, i) => {
    try {
      output.push(...ipsetLine(kernel, line.split(' ')));
      if (!line.startsWith('save ')) kernel.afterEach();
    } catch (error) {
      throw new ToolError(`ipset: Error in line ${i + 1}: ${(error as Error).message}`, { cause: error });
    }
  });
  return output.join('\n');
}

function ipsetLine(kernel: FakeKernel, words: readonly string[]): readonly string[] {
  const [verb, name = '', what = ''] = words;
  const option = (key: string): string => words[words.indexOf(key) + 1] ?? '';
  if (verb === 'create') {
    if (kernel.sets.has(name)) throw new ToolError('set with the same name already exists');
    const set = {
      type: what,
      family: option('family'),
      maxelem: Number(option('maxelem')),
      entries: new Map(),
    };
    kernel.sets.set(name, set);
    return [];
  }
  const set = kernel.sets.get(name);
  if (set === undefined) throw new ToolError('The set with the given name does not exist');
  if (verb === 'save') return saved(name, set);
  if (verb === 'del') set.entries.delete(what);
  if (verb === 'add') {
    if (!set.entries.has(what) && set.entries.size >= set.maxelem) throw new ToolError('Hash is full');
    set.entries.set(what, words.includes('nomatch'));
  }
  if (verb === 'destroy') {
    const rules = [...kernel.chains.values()].flat();
    if (rules.some(rule => wordsOf(rule).includes(name))) {
      throw new ToolError('Set cannot be destroyed: it is in use by a kernel component');
    }
    kernel.sets.delete(name);
  }
  if (verb === 'swap') {
    const other = kernel.sets.get(what);
    if (other === undefined) throw new ToolError('the second set does not exist');
    if (other.type !== set.type || other.family !== set.family) throw new ToolError('type does not match');
    kernel.sets.set(what, set);
    kernel.sets.set(name, other);
  }
  return [];
}

const saved = (name: string, set: FakeSet): readonly string[] => [
  `create ${name} ${set.type} family ${set.family} hashsize 1024 maxelem ${set.maxelem} bucketsize 12 initval 0x0`,
  ...[...set.entries].map(
    ([cidr, nomatch]) => `add ${name} ${cidr.replace(/\/32$/, '')}${nomatch ? ' nomatch' : ''}`,
  ),
];

/** The chains after a transaction; throws, and changes nothing, when one of its lines cannot be. */
function transaction(kernel: FakeKernel, text: string): Map<string, readonly string[]> {
  const chains = new Map(kernel.chains);
  for (const line of text.split('\n')) {
    const [verb = '', chain = ''] = line.split(' ', 2);
    const rules = chains.get(chain) ?? [];
    const rest = line.slice(verb.length + chain.length + 2);
    if (verb.startsWith(':')) chains.set(verb.slice(1), []);
    else if (verb === '-A') chains.set(chain, [...rules, rest]);
    else if (verb === '-I') chains.set(chain, [rest.replace(/^1 /, ''), ...rules]);
    else if (verb === '-D') {
      if (!rules.includes(rest)) throw new ToolError('Bad rule (does a matching rule exist in that chain?).');
      chains.set(chain, rules.toSpliced(rules.indexOf(rest), 1));
    } else if (verb === '-X') {
      const led = [...chains.values()].flat().some(rule => wordsOf(rule).at(-1) === chain);
      if (rules.length > 0 || led)
        throw new ToolError(`CHAIN_DEL failed (Device or resource busy): ${chain}`);
      chains.delete(chain);
    }
  }
  for (const rule of [...chains.values()].flat()) checkRule(kernel, chains, wordsOf(rule));
  return chains;
}

function checkRule(kernel: FakeKernel, chains: ReadonlyMap<string, unknown>, args: readonly string[]): void {
  const target = args[args.indexOf('-j') + 1] ?? '';
  if (target.startsWith('masq-') && !chains.has(target))
    throw new ToolError(`Chain '${target}' does not exist`);
  const missing = args.find((arg, i) => args[i - 1] === '--match-set' && !kernel.sets.has(arg));
  if (missing !== undefined) throw new ToolError(`Set ${missing} doesn't exist.`);
}

function walk(kernel: FakeKernel, chain: string, source: number, destination: number): string | undefined {
  for (const rule of kernel.chains.get(chain) ?? []) {
    const args = wordsOf(rule);
    const matches = args.every((arg, i) => {
      if (arg !== '--match-set') return true;
      const address = args[i + 2] === 'src' ? source : destination;
      return isMember(kernel.sets.get(args[i + 1] ?? ''), address) !== (args[i - 1] === '!');
    });
    if (!matches) continue;
    const target = args[args.indexOf('-j') + 1] ?? '';
    if (target === 'RETURN') return undefined;
    const verdict = kernel.chains.has(target) ? walk(kernel, target, source, destination) : target;
    if (verdict !== undefined) return verdict;
  }
  return undefined;
}

/** The longest prefix that holds the address decides. */
function isMember(set: FakeSet | undefined, address: number): boolean {
  let longest = -1;
  let member = false;
  for (const [cidr, nomatch] of set?.entries ?? []) {
    const [base = '', prefix = ''] = cidr.split('/');
    const bits = Number(prefix);
    const value = base.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);
    if (bits <= longest || Math.floor(address / 2 ** (32 - bits)) !== Math.floor(value / 2 ** (32 - bits)))
      continue;
    longest = bits;
    member = !nomatch;
  }
  return member;
}
