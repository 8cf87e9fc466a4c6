// Reads the nat rules that this kernel asks at hook postrouting: of iptables-nft, of iptables-legacy and of nft's own
// tables, each chain with those that it reaches. Reads only: no table comes into being by being looked at. Chains are
// listed one by one where the tool can, so that a node's 25,000 service rules are left alone; next to them, measured
// with nft 1.0.6 and iptables 1.8.9: `nft list chains` 84 ms, one chain of nft 10 ms (100 where its table has sets of
// 25,000 entries), of iptables-nft 3 ms, the whole table of iptables-legacy 70 ms, of iptables-nft 470 ms.
import type { Family } from '../../cidr/address.ts';
import { isOwnChain } from '../../render/names.ts';
import { findToolsets, iptablesTool, mayRead, type Toolset } from '../backend.ts';
import { type Clock, systemClock } from '../clock.ts';
import { messageOf } from '../errors.ts';
import type { Exec } from '../exec.ts';
import { readListing, readRule, type PrintedChain } from './iptables.ts';
import type { BaseChain, ForeignRule, NatRules, NftFamily } from './model.ts';
import { type NftBase, readBases, readNftRule, readNftRules, readTexts } from './nft.ts';
import { isPlainName } from './nft-match.ts';
import { POSTROUTING } from '../iptables.ts';
import { type RunContext, runContext, runTool, tryTool, WAIT_ARGS } from '../run.ts';

/** Beyond so many chains the whole table of iptables-nft is read at once. */
const FEW_CHAINS = 64;

/** The priority of srcnat: iptables-legacy's hook, and iptables-nft's chain. */
const SRCNAT = 100;

/**
 * Reads what decides about the source addresses of a family. What cannot be read becomes a gap, in a sentence;
 * rejects only when the signal aborts. Chains are read one after the other, so a change in between can show.
 */
export async function readNatRules(
  exec: Exec,
  family: Family,
  signal?: AbortSignal,
  clock: Clock = systemClock,
): Promise<NatRules> {
  const context = runContext({ exec, clock, lockWaitMs: 0, signal });
  const tools = await findToolsets(context);
  const reading: Reading = { context, family, gaps: [], hooks: [] };
  await readNft(
    reading,
    tools.find(({ backend }) => backend === 'nft'),
  );
  const legacy = tools.find(({ backend }) => backend === 'legacy');
  if (legacy !== undefined) await readLegacy(reading, legacy);
  const hooks = reading.hooks.sort((a, b) => a.priority - b.priority);
  return { family, hooks, gaps: reading.gaps };
}

interface Reading {
  readonly context: RunContext;
  readonly family: Family;
  readonly gaps: string[];
  readonly hooks: BaseChain[];
}

type Rules = readonly ForeignRule[];

/** Gives the rules of a chain; undefined when there is no such chain or it cannot be read. */
type ReadChain = (name: string) => Promise<Rules | undefined>;

/**
 * The base chain and what it reaches, level by level. Ours lead nowhere: what is in them is decide's to say.
 * `readRest` takes over when there are many.
 */
async function reach(root: string, read: ReadChain, readRest: () => Promise<ReadChain>) {
  const chains = new Map<string, Rules>();
  const asked = new Set([root]);
  let reader = read;
  for (const name of asked) {
    if (asked.size > FEW_CHAINS && reader === read) reader = await readRest();
    const rules = await reader(name);
    if (rules === undefined) continue;
    chains.set(name, rules);
    for (const { outcome } of rules) {
      if ((outcome.kind === 'jump' || outcome.kind === 'goto') && !isOwnChain(outcome.chain)) {
        asked.add(outcome.chain);
      }
    }
  }
  return chains;
}

async function readNft(reading: Reading, tools: Toolset | undefined): Promise<void> {
  const { context, family, gaps, hooks } = reading;
  const listing = await tryTool(context, 'nft', ['-j', 'list', 'chains']);
  if (!listing.ok) {
    gaps.push(`Chains of nftables are not known: ${listing.error.message}.`);
    if (tools !== undefined) await readPlainPostrouting(reading, tools);
    return;
  }
  const families: readonly NftFamily[] = [family === 4 ? 'ip' : 'ip6', 'inet'];
  try {
    for (const base of readBases(listing.stdout, families)) {
      const isIptables = base.family !== 'inet' && base.table === 'nat' && base.name === POSTROUTING;
      const chains = isIptables && tools !== undefined ? await chainsOfIptables(reading, tools) : undefined;
      const { policy, priority, name, handle, table } = base;
      const nft = { family: base.family, table, handle };
      if (tools !== undefined && chains !== undefined) {
        const place = `${iptablesTool(tools, family)} nat ${POSTROUTING}`;
        hooks.push({ readBy: 'iptables-nft', place, name, priority, policy, nft, chains });
      } else {
        const place = `nft ${base.family} ${table} ${name}`;
        hooks.push({
          readBy: 'nft',
          place,
          name,
          priority,
          policy,
          nft,
          chains: await chainsOfNft(reading, base),
        });
      }
    }
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    gaps.push(`Chains of nftables are not known: what nft prints cannot be read: ${error.message}.`);
  }
}

/** Without nft's program there is no handle and no priority to be read; iptables-nft 1.8.9 creates nothing by -S. */
async function readPlainPostrouting(reading: Reading, tools: Toolset): Promise<void> {
  const chains = await chainsOfIptables(reading, tools);
  if (chains === undefined) {
    reading.gaps.push(`POSTROUTING of ${iptablesTool(tools, reading.family)} cannot be listed.`);
    return;
  }
  const place = `${iptablesTool(tools, reading.family)} nat ${POSTROUTING}`;
  reading.hooks.push({
    readBy: 'iptables-nft',
    place,
    name: POSTROUTING,
    priority: SRCNAT,
    policy: 'accept',
    nft: { family: reading.family === 4 ? 'ip' : 'ip6', table: 'nat', handle: 0 },
    chains,
  });
}

/** undefined when iptables-nft cannot show the root chain: it is not there, or holds a rule of nft's own making. */
async function chainsOfIptables(reading: Reading, tools: Toolset, table = 'nat', root = POSTROUTING) {
  const { context, family, gaps } = reading;
  const tool = iptablesTool(tools, family);
  const read: ReadChain = async name => {
    const outcome = await tryTool(context, tool, [...WAIT_ARGS, '-t', table, '-S', name]);
    return outcome.ok ? rulesOf(reading, tool, outcome.stdout)?.(name) : undefined;
  };
  const readRest = async (): Promise<ReadChain> => {
    const outcome = await tryTool(context, tool, [...WAIT_ARGS, '-t', table, '-S']);
    const listed = outcome.ok ? rulesOf(reading, tool, outcome.stdout) : undefined;
    if (!outcome.ok)
      gaps.push(`Chains of ${tool} beyond the first ${FEW_CHAINS} are not known: ${outcome.error.message}.`);
    return name => Promise.resolve(listed?.(name));
  };
  const chains = await reach(root, read, readRest);
  return chains.has(root) ? chains : undefined;
}

/** A listing's rules by chain; undefined, with a gap, when the text cannot be read. */
function rulesOf(reading: Reading, tool: string, text: string) {
  let chains: ReadonlyMap<string, PrintedChain>;
  try {
    chains = readListing(text);
  } catch (error) {
    reading.gaps.push(`What ${tool} prints cannot be read: ${messageOf(error)}.`);
    return undefined;
  }
  return (name: string) => chains.get(name)?.lines.map(line => readRule(line, reading.family));
}

async function chainsOfNft({ context, gaps }: Reading, base: NftBase) {
  const { family, table } = base;
  const read: ReadChain = async name => {
    // nft joins its arguments and parses them, so a name with anything unusual in it would become syntax.
    if (!isPlainName(table) || !isPlainName(name)) return undefined;
    const chain = ['list', 'chain', family, table, name];
    const [rules, texts] = await Promise.all([
      tryTool(context, 'nft', ['-j', '-t', ...chain]),
      tryTool(context, 'nft', ['-a', '-s', '-t', ...chain]),
    ]);
    if (!rules.ok || !texts.ok) return undefined;
    const textByHandle = readTexts(texts.stdout);
    return readNftRules(rules.stdout).map(rule => readNftRule(rule, textByHandle.get(rule.handle), base));
  };
  const chains = await reach(base.name, read, async () => {
    gaps.push(
      `Table ${family} ${table} of nftables has more than ${FEW_CHAINS} chains behind ${base.name}; the rest was not read.`,
    );
    return () => Promise.resolve(undefined);
  });
  if (!chains.has(base.name))
    gaps.push(`Chain ${base.name} of table ${family} ${table} of nftables cannot be read.`);
  return chains;
}

/** Of raw PREROUTING, which both iptables have at this priority. */
const RAW = -300;

/**
 * Reads raw PREROUTING of both backends, where packets can be taken out of connection tracking, and with that from all
 * rules of table nat. Rules of nft's own making are not looked at. As readNatRules otherwise.
 */
export async function readRawRules(
  exec: Exec,
  family: Family,
  signal?: AbortSignal,
  clock: Clock = systemClock,
): Promise<NatRules> {
  const context = runContext({ exec, clock, lockWaitMs: 0, signal });
  const reading: Reading = { context, family, gaps: [], hooks: [] };
  for (const tools of await findToolsets(context)) {
    if (!(await mayRead(context, tools, family, 'raw'))) continue;
    const chains = await chainsOfIptables(reading, tools, 'raw', PREROUTING);
    if (chains === undefined) continue;
    const readBy = `iptables-${tools.backend}` as const;
    const place = `${iptablesTool(tools, family)} raw ${PREROUTING}`;
    reading.hooks.push({ readBy, place, name: PREROUTING, priority: RAW, policy: 'accept', chains });
  }
  return { family, hooks: reading.hooks, gaps: reading.gaps };
}

const PREROUTING = 'PREROUTING';

/** The kernel hands out legacy's table whole, so it is read whole. It is only read where it is loaded already. */
async function readLegacy(reading: Reading, tools: Toolset): Promise<void> {
  const { context, family, gaps, hooks } = reading;
  const tool = iptablesTool(tools, family);
  try {
    if (!(await mayRead(context, tools, family, 'nat'))) return;
    const chains = readListing(await runTool(context, tool, [...WAIT_ARGS, '-t', 'nat', '-S']));
    const read: ReadChain = name =>
      Promise.resolve(chains.get(name)?.lines.map(line => readRule(line, family)));
    hooks.push({
      readBy: 'iptables-legacy',
      place: `${tool} nat ${POSTROUTING}`,
      name: POSTROUTING,
      priority: SRCNAT,
      policy: chains.get(POSTROUTING)?.policy ?? 'accept',
      chains: await reach(POSTROUTING, read, () => Promise.resolve(read)),
    });
  } catch (error) {
    context.signal?.throwIfAborted();
    gaps.push(`Rules of ${tool} are not known: ${messageOf(error)}.`);
  }
}
