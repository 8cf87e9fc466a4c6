// Which parts of a file are configurations of ip-masq-agent: the file itself, ConfigMaps, EgressNATPolicies, and what a
// DaemonSet tells the agent on its command line.
import { isObject, type JsonObject, own } from '../api/fields.ts';
import { member, quote } from '../api/report.ts';
import type { AgentFlags, AgentForm, AgentSource } from './agent.ts';

/** What was found in the files. */
export interface Found {
  readonly sources: readonly AgentSource[];
  readonly flags: Partial<AgentFlags>;
  /** The chain of --masq-chain. */
  readonly chain?: string;
  readonly faults: readonly string[];
}

/** The documents of a text, which also stands in ConfigMaps. */
export type ReadText = (
  where: string,
  text: string,
) => { readonly values: readonly unknown[]; readonly problems: readonly string[] };

const NOTHING: Found = { sources: [], flags: {}, faults: [] };

/** All values of one file. */
export function findAgent(where: string, values: readonly unknown[], read: ReadText): Found {
  if (values.length === 0) return { ...NOTHING, sources: [{ where, value: undefined }] };
  return merged(values.map(value => findIn(where, value, read)));
}

export function merged(found: readonly Found[]): Found {
  const chain = found.findLast(it => it.chain !== undefined)?.chain;
  return {
    sources: found.flatMap(({ sources }) => sources),
    flags: Object.assign({}, ...found.map(({ flags }) => flags)) as Partial<AgentFlags>,
    ...(chain === undefined ? {} : { chain }),
    faults: found.flatMap(({ faults }) => faults),
  };
}

function findIn(where: string, value: unknown, read: ReadText): Found {
  if (!isObject(value) || typeof own(value, 'kind') !== 'string')
    return { ...NOTHING, sources: [{ where, value }] };
  const metadata = own(value, 'metadata');
  const name = isObject(metadata) ? own(metadata, 'name') : undefined;
  const kind = own(value, 'kind') as string;
  const object = `${where}: ${kind}/${typeof name === 'string' ? name : '?'}`;
  switch (kind) {
    case 'ConfigMap':
      return inConfigMap(object, value, name, read);
    case 'DaemonSet':
      return inDaemonSet(object, value);
    case 'EgressNATPolicy':
      return { ...NOTHING, sources: [{ where: object, value }], flags: { form: 'gke' } };
    default:
      return {
        ...NOTHING,
        faults: [`${object}: kind: ${quote(kind)} is not ConfigMap, DaemonSet or EgressNATPolicy`],
      };
  }
}

function inConfigMap(object: string, value: JsonObject, name: unknown, read: ReadText): Found {
  const data = own(value, 'data') ?? {};
  if (!isObject(data)) return { ...NOTHING, faults: [`${object}: data: ${quote(data)} is not an object`] };
  const faults: string[] = [];
  const sources = Object.entries(data).flatMap(([key, text]): readonly AgentSource[] => {
    const where = `${object}: ${member('data', key)}`;
    if (typeof text !== 'string') {
      faults.push(`${where}: ${quote(text)} is not a string`);
      return [];
    }
    const { values, problems } = read(where, text);
    faults.push(...problems);
    return values.length === 0 ? [{ where, value: undefined }] : values.map(item => ({ where, value: item }));
  });
  const isAzures = typeof name === 'string' && name.startsWith('azure-ip-masq-agent');
  return { sources, flags: isAzures ? { form: 'azure' } : {}, faults };
}

function inDaemonSet(object: string, value: JsonObject): Found {
  const containers = at(value, 'spec', 'template', 'spec', 'containers');
  const agents = (Array.isArray(containers) ? containers : [])
    .filter(isObject)
    .filter(it => `${String(own(it, 'name'))} ${String(own(it, 'image'))}`.includes('ip-masq-agent'));
  const [agent] = agents;
  if (agent === undefined || agents.length > 1)
    return { ...NOTHING, faults: [`${object}: has ${agents.length} containers of ip-masq-agent, not one`] };
  const words = ['command', 'args'].flatMap(key => {
    const list = own(agent, key);
    return Array.isArray(list) ? list.filter(it => typeof it === 'string') : [];
  });
  const flag = (name: string): string | undefined => {
    const found = words.findLast(word => new RegExp(`^--?${name}(=|$)`).test(word));
    return found === undefined ? undefined : (found.split('=')[1] ?? 'true');
  };
  const form: AgentForm = String(own(agent, 'image')).includes('ip-masq-agent-v2') ? 'azure' : 'kubernetes';
  const chain = flag('masq-chain');
  return {
    ...NOTHING,
    flags: {
      form,
      allReserved: isTrue(flag('nomasq-all-reserved-ranges')),
      ipv6: isTrue(flag('enable-ipv6')),
    },
    ...(chain === undefined ? {} : { chain }),
  };
}

/** As Go's flags are read. */
const isTrue = (text: string | undefined): boolean =>
  ['1', 't', 'T', 'true', 'TRUE', 'True'].includes(text ?? '');

function at(value: unknown, ...path: readonly string[]): unknown {
  return path.reduce((inner, key) => (isObject(inner) ? own(inner, key) : undefined), value);
}
