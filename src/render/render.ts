// Plan → wanted state of one family's sets, chains and rules. Pure. What decides about a packet here is what
// planner/decide.ts says in plain code; the shape (guards, chains) only makes it fast.
import type { Address, Family } from '../cidr/address.ts';
import { type AddressSet, setOf, storableEntries, type SetEntry } from '../cidr/address-set.ts';
import { formatCidr } from '../cidr/cidr.ts';
import { snatAddress } from '../planner/decide.ts';
import { shortHash } from '../planner/ids.ts';
import type { NodeValues, Plan, PlanPolicy, PlanRule } from '../planner/plan.ts';
import { chainOf, type RuleSpec } from './chain.ts';
import { guarded, type GuardSink, type Item, setMatch } from './guards.ts';
import { NAT_OUTGOING_CHAIN, policyChainName, setName, TOP_CHAIN } from './names.ts';
import type { FamilyTables, KernelChain, KernelEntry, KernelSet } from './tables.ts';
import { portClauses, targets, type Translation } from './targets.ts';

/** More entries than this in a guard cost more memory and time to fill than the walk that they save. */
const MAX_GUARD_ENTRIES = 4096;

interface Context extends GuardSink {
  readonly plan: Plan;
  readonly family: Family;
  readonly values: NodeValues;
  /** The kernel's name of a plan's set, which is thereby wanted; undefined when it has no address of this family. */
  use(id: string): string | undefined;
}

/** The wanted state of one family on one node. */
export function renderFamily(plan: Plan, values: NodeValues, family: Family): FamilyTables {
  const sets = new Map<string, KernelSet>();
  const chains = new Map<string, KernelChain>();
  const addresses = (id: string): AddressSet => {
    const set = plan.sets.get(id);
    if (set === undefined) throw new Error(`the plan has no set ${id}`);
    return set.addresses[family];
  };
  const add = (id: string, set: AddressSet, guard: boolean): string => {
    const name = setName(family, id);
    if (!sets.has(name)) sets.set(name, kernelSet(name, set, guard));
    return name;
  };
  const context: Context = {
    plan,
    family,
    values,
    use: id => (addresses(id).entries.length === 0 ? undefined : add(id, addresses(id), false)),
    chain: (name, rules) => void chains.set(name, chainOf(name, rules)),
    guardSet(ids) {
      if (ids.length === 1) return this.use(ids[0] as string);
      const entries = ids.flatMap(id => addresses(id).entries.filter(entry => !entry.nomatch));
      if (entries.length > MAX_GUARD_ENTRIES) return undefined;
      const union = setOf(
        family,
        entries.map(entry => entry.cidr),
      );
      return add(`g-${shortHash(ids.join())}`, union, true);
    },
  };
  const top = topRules(context);
  context.chain(TOP_CHAIN, top.rules);
  return {
    family,
    needed: top.needed,
    sets: sortByName(sets),
    chains: sortByName(chains),
    jump: jumpRule(),
  };
}

const sortByName = <T>(byName: ReadonlyMap<string, T>): readonly T[] =>
  [...byName].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, value]) => value);

/** Always the same text, whatever the version and the plan: it is deleted by value when it has to move. */
export function jumpRule(): KernelChain['rules'][number] {
  const rule = chainOf('POSTROUTING', [{ args: ['-j', TOP_CHAIN], label: 'pod traffic' }]).rules[0];
  if (rule === undefined) throw new Error('a chain of one rule has one rule');
  return rule;
}

function topRules(context: Context): { readonly rules: readonly RuleSpec[]; readonly needed: boolean } {
  const { plan } = context;
  const mark = `0x${plan.kubeMark.toString(16)}`;
  const policies = guarded(
    plan.policies.flatMap(policy => policyItem(policy, context)),
    context,
  );
  const natOutgoing = natOutgoingRules(context);
  if (natOutgoing.length > 0) context.chain(NAT_OUTGOING_CHAIN, natOutgoing);
  const acting = [
    ...policies,
    ...(natOutgoing.length > 0
      ? [{ args: ['-j', NAT_OUTGOING_CHAIN], label: 'natOutgoing of IPPools' }]
      : []),
    ...plan.tunnelInterfaces.map(tunnelRule),
  ];
  const kubeProxy = {
    args: ['-m', 'mark', '--mark', `${mark}/${mark}`, '-j', 'RETURN'],
    label: 'for kube-proxy',
  };
  return { rules: [kubeProxy, ...acting], needed: acting.length > 0 };
}

/** What the host sends into a tunnel from an address that is not the tunnel's would get no reply (as Felix does). */
const tunnelRule = (name: string): RuleSpec => ({
  args: [
    '-o',
    name,
    ...'-m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL -j MASQUERADE'.split(
      ' ',
    ),
  ],
  label: `host traffic into tunnel ${name}`,
});

/** Step 3 of `decide`; no rules where no pool of this family has natOutgoing. */
function natOutgoingRules(context: Context): readonly RuleSpec[] {
  const { poolDefault } = context.plan;
  const source = context.use(poolDefault.source);
  if (source === undefined) return [];
  const address = poolDefault.addresses[context.family];
  const spared = [poolDefault.spared, poolDefault.sparedNodes].flatMap(id => {
    const name = id === undefined ? undefined : context.use(id);
    return name === undefined ? [] : setMatch(name, 'dst', true);
  });
  return translate(
    [
      ...(poolDefault.outInterface === undefined ? [] : ['-o', poolDefault.outInterface]),
      ...setMatch(source, 'src'),
      ...spared,
    ],
    { ...poolDefault, action: address === undefined ? 'Masquerade' : 'SNAT', ...optional(address) },
    undefined,
    'natOutgoing of IPPools',
    context,
  );
}

/** A policy as an item of the top chain; none where it can match no packet of this family. */
function policyItem(policy: PlanPolicy, context: Context): readonly Item[] {
  const source = context.use(policy.source);
  if (source === undefined) return [];
  const items = [
    ...policy.rules.flatMap(rule => ruleItem(policy, rule, context)),
    ...defaultItem(policy, context),
  ];
  if (items.length === 0) return [];
  const destinations = items.every(item => item.destinations !== undefined)
    ? { destinations: [...new Set(items.flatMap(item => item.destinations ?? []))].sort() }
    : {};
  const bare = { key: policy.name, sources: [policy.source], ...destinations };
  const fromHere = setMatch(source, 'src');
  // RETURN must leave the policy and nothing else, so a policy that uses it has a chain of its own, walked in order.
  const returns = policy.dryRun || policy.rules.some(rule => rule.action === 'Continue');
  const rules = returns ? items.flatMap(item => item.rules) : guarded(items, context);
  if (!returns && rules.length <= 2) {
    return [{ ...bare, rules: rules.map(rule => ({ ...rule, args: withMatch(rule.args, fromHere) })) }];
  }
  const chain = policyChainName(policy.name);
  context.chain(chain, rules);
  return [{ ...bare, rules: [{ args: [...fromHere, '-j', chain], label: policy.name }] }];
}

/**
 * Adds a match behind those that are there, before the protocol and the target: most new flows come from pods, so the
 * destination is asked before the source.
 */
function withMatch(args: readonly string[], match: readonly string[]): readonly string[] {
  const at = args.findIndex(arg => arg === '-p' || arg === '-j');
  return [...args.slice(0, at), ...match, ...args.slice(at)];
}

function ruleItem(policy: PlanPolicy, rule: PlanRule, context: Context): readonly Item[] {
  const destination = rule.to === undefined ? undefined : context.use(rule.to);
  if (rule.to !== undefined && destination === undefined) return [];
  const address = snatAddress(rule, context.family, context.values);
  if (rule.action === 'SNAT' && address === undefined) return [];
  const label = `${policy.name}/${rule.name}`;
  const translation: Translation = {
    action: policy.dryRun ? 'Continue' : rule.action,
    ...optional(policy.dryRun ? undefined : address),
    ...(rule.portRange === undefined ? {} : { portRange: rule.portRange }),
    portAllocation: rule.portAllocation,
  };
  const rules = (rule.outInterfaces ?? [undefined]).flatMap(name =>
    translate(
      [
        ...(name === undefined ? [] : ['-o', name]),
        ...(destination === undefined ? [] : setMatch(destination, 'dst')),
      ],
      translation,
      rule.ports,
      label,
      context,
    ),
  );
  return [{ key: label, rules, ...(rule.to === undefined ? {} : { destinations: [rule.to] }) }];
}

function defaultItem(policy: PlanPolicy, context: Context): readonly Item[] {
  if (policy.defaultAction === 'Continue' || policy.dryRun) return [];
  const label = `${policy.name} defaultAction`;
  const translation: Translation = { action: policy.defaultAction, portAllocation: 'FullyRandom' };
  return [{ key: label, rules: translate([], translation, undefined, label, context) }];
}

const optional = (address: Address | undefined): { address?: Address } =>
  address === undefined ? {} : { address };

const translate = (
  matches: readonly string[],
  translation: Translation,
  ports: PlanRule['ports'],
  label: string,
  { family }: Context,
): readonly RuleSpec[] =>
  portClauses(ports, family)
    .flatMap(clause => targets(translation, clause, family))
    .map(args => ({ args: [...matches, ...args], label }));

function kernelSet(name: string, set: AddressSet, guard: boolean): KernelSet {
  const entries = kernelEntries(set);
  return { name, guard, maxelem: maxelemFor(entries.length), entries };
}

/** From need with head-room; the default of 65,536 is the least, so that small sets never have to be made anew. */
export function maxelemFor(entries: number): number {
  let maxelem = 65_536;
  while (maxelem < entries + entries / 4) maxelem *= 2;
  return maxelem;
}

const textBySet = new WeakMap<AddressSet, readonly KernelEntry[]>();
const textByEntry = new WeakMap<SetEntry, KernelEntry>();

/** Printed once for each entry: the same object is the same text, so that what did not change is seen by identity. */
function kernelEntries(set: AddressSet): readonly KernelEntry[] {
  let entries = textBySet.get(set);
  if (entries === undefined) {
    entries = storableEntries(set).map(entry => {
      let text = textByEntry.get(entry);
      if (text === undefined) {
        text = { cidr: formatCidr(entry.cidr), nomatch: entry.nomatch };
        textByEntry.set(entry, text);
      }
      return text;
    });
    textBySet.set(set, entries);
  }
  return entries;
}
