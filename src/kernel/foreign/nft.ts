// Reads what nft prints (1.0.6): chains, and rules as their expressions in order. Matches ask (foreign-nft-match.ts),
// statements act, and one verdict may end the rule. Understood are the forms that Felix, kube-proxy and firewalld
// write, and that nft shows for rules of iptables-nft.
import { expressionOf, isList, isObject, type Json, type JsonObject, member, textOf } from './json.ts';
import {
  type Condition,
  type ForeignRule,
  type MarkChange,
  type NftFamily,
  type Outcome,
  UNKNOWN_MARK,
  unknownCondition,
} from './model.ts';
import { readMangle, readMatch, type TableRef, wordsOf } from './nft-match.ts';

export interface NftBase extends TableRef {
  readonly name: string;
  readonly handle: number;
  readonly priority: number;
  readonly policy: 'accept' | 'drop';
}

export interface NftRule {
  readonly handle: number;
  readonly expressions: readonly Json[];
}

/** The objects of one kind in nft's answer. Throws a SyntaxError when it is no answer of nft. */
function objectsOf(text: string, kind: string): readonly JsonObject[] {
  const list = member(JSON.parse(text) as Json, 'nftables');
  if (!isList(list)) throw new SyntaxError('it is not what nft -j prints');
  return list.map(item => member(item, kind)).filter(isObject);
}

/** The chains of type nat at hook postrouting, in the answer to `list chains`, of the families given. */
export function readBases(text: string, families: readonly NftFamily[]): readonly NftBase[] {
  return objectsOf(text, 'chain').flatMap(chain => {
    const { table, name, handle, prio } = chain;
    const family = families.find(known => known === chain['family']);
    if (chain['type'] !== 'nat' || chain['hook'] !== 'postrouting' || family === undefined) return [];
    if (typeof table !== 'string' || typeof name !== 'string') return [];
    if (typeof handle !== 'number' || typeof prio !== 'number') return [];
    const policy = chain['policy'] === 'drop' ? 'drop' : 'accept';
    return [{ family, table, name, handle, priority: prio, policy }];
  });
}

/** The rules in the answer to `list chain`. */
export const readNftRules = (text: string): readonly NftRule[] =>
  objectsOf(text, 'rule').map(({ handle, expr }) => ({
    handle: Number(handle),
    expressions: isList(expr) ? expr : [],
  }));

/** The rules' texts by their handles, in the answer to `nft -a list chain`. */
export function readTexts(text: string): ReadonlyMap<number, string> {
  const texts = new Map<number, string>();
  for (const line of text.split('\n')) {
    const found = /^\s*(.*) # handle (\d+)$/.exec(line);
    if (found !== null) texts.set(Number(found[2]), (found[1] as string).trim());
  }
  return texts;
}

/** Reads one rule. Never throws: what is not understood is an unknown condition or outcome. */
export function readNftRule(rule: NftRule, text: string | undefined, table: TableRef): ForeignRule {
  const conditions: Condition[] = [];
  let mark: MarkChange | undefined;
  let outcome: Outcome = { kind: 'continue' };
  for (const expression of rule.expressions) {
    const read = readExpression(expression, table);
    // What is asked after a change of the mark would have to be judged by another mark than what came before it.
    const asked =
      mark === undefined ? read.conditions : read.conditions?.map(({ text }) => unknownCondition(text));
    conditions.push(...(asked ?? []));
    if (read.mark !== undefined) mark = mark === undefined ? read.mark : UNKNOWN_MARK;
    outcome = read.outcome ?? outcome;
  }
  return {
    text: text ?? JSON.stringify(rule.expressions),
    conditions,
    ...(mark === undefined ? {} : { mark }),
    outcome,
  };
}

/** What one expression adds to a rule. */
type Addition = Partial<Pick<ForeignRule, 'conditions' | 'mark' | 'outcome'>>;

function readExpression(expression: Json, table: TableRef): Addition {
  const [kind, value] = expressionOf(expression);
  switch (kind) {
    case 'match':
      return { conditions: readMatch(value, table) };
    case 'mangle':
      return readMangle(value);
    case 'xt':
      return readXt(value);
    // Sets and maps that the rule fills, and conntrack's helpers, end nothing.
    case 'counter':
    case 'log':
    case 'continue':
    case 'set':
    case 'map':
      return {};
    case 'accept':
    case 'return':
    case 'drop':
      return { outcome: { kind } };
    case 'masquerade':
      return { outcome: { kind } };
    case 'snat':
      return { outcome: { kind, to: translationOf(value) } };
    case 'jump':
    case 'goto': {
      const target = member(value, 'target');
      return {
        outcome: typeof target === 'string' ? { kind, chain: target } : { kind: 'unknown', what: kind },
      };
    }
    case 'vmap':
    case 'queue':
      return { outcome: { kind: 'unknown', what: kind } };
    default:
      // Limits and quotas ask without the word match; what else there may be is not known.
      return { conditions: [unknownCondition(wordsOf(expression))] };
  }
}

/** The address or addresses of `snat`; undefined when a map or the packet gives them. */
function translationOf(value: Json): string | undefined {
  const address = member(value, 'addr');
  if (typeof address === 'string') return address;
  const range = member(address, 'range');
  const [first, last] = isList(range) ? range : [];
  return typeof first === 'string' && typeof last === 'string' ? `${first}-${last}` : undefined;
}

const XT_PASSIVE: ReadonlySet<string> = new Set(['LOG', 'NFLOG', 'TRACE', 'SET']);

/** A match or target of iptables, of which nft knows the name alone. */
function readXt(value: Json): Addition {
  const type = member(value, 'type');
  const name = textOf(value, 'name');
  if (type === 'match') return name === 'comment' ? {} : { conditions: [unknownCondition(`-m ${name}`)] };
  if (name === 'MASQUERADE') return { outcome: { kind: 'masquerade' } };
  if (name === 'SNAT' || name === 'NETMAP') return { outcome: { kind: 'snat', to: undefined } };
  if (name === 'MARK' || name === 'CONNMARK') return { mark: UNKNOWN_MARK };
  return XT_PASSIVE.has(name) ? {} : { outcome: { kind: 'unknown', what: `-j ${name}` } };
}
