// Which of the two iptables backends of this host is in use, and what their programs are called here.
//
// iptables-legacy and iptables-nft keep separate tables, both of which packets traverse. Rules belong where kubelet,
// kube-proxy and Felix have theirs. Reading with a legacy tool loads the table into the network namespace for good,
// so the kernel's list of loaded tables is asked first.
import { FAMILIES, type Family } from '../cidr/address.ts';
import { KernelError } from './errors.ts';
import { type RunContext, tryTool, WAIT_ARGS } from './run.ts';

export type Backend = 'nft' | 'legacy';

export const BACKENDS: readonly Backend[] = ['nft', 'legacy'];

export interface Toolset {
  readonly backend: Backend;
  /** What is put behind `iptables` and `ip6tables`: -nft, -legacy, or nothing. */
  readonly suffix: string;
}

export const iptablesTool = (tools: Toolset, family: Family): string =>
  `${family === 4 ? 'iptables' : 'ip6tables'}${tools.suffix}`;

export const restoreTool = (tools: Toolset, family: Family): string =>
  `${iptablesTool(tools, family)}-restore`;

export interface Detection {
  readonly tools: Toolset;
  /** A phrase for the log and the status. */
  readonly why: string;
  /** It is the one that other programs use; absent: nothing is known of others. */
  readonly byNeighbours?: true;
}

/**
 * The backends whose programs are installed. Where only the plain name exists (old distributions), its --version
 * tells the backend; before 1.8 there was only legacy. The list is empty when iptables is not installed.
 */
export async function findToolsets(context: RunContext): Promise<readonly Toolset[]> {
  const asked = await Promise.all(
    BACKENDS.map(backend => tryTool(context, `iptables-${backend}`, ['--version'])),
  );
  const found = BACKENDS.filter((_, i) => asked[i]?.ok === true);
  if (found.length > 0) return found.map(backend => ({ backend, suffix: `-${backend}` }));
  const plain = await tryTool(context, 'iptables', ['--version']);
  if (!plain.ok) return [];
  return [{ backend: plain.stdout.includes('nf_tables') ? 'nft' : 'legacy', suffix: '' }];
}

/** kubelet creates these in table mangle of the backend that it means. */
const HINT_CHAINS: readonly string[] = ['KUBE-IPTABLES-HINT', 'KUBE-KUBELET-CANARY'];
const NEIGHBOUR_CHAINS: readonly string[] = ['KUBE-POSTROUTING', 'KUBE-SERVICES', 'cali-POSTROUTING'];

/**
 * Finds the backend that the neighbours use: the one with kubelet's hint chains, of both the one with more of the
 * known chains; nft when there are none. Both families count. Throws KernelError not-found without iptables.
 */
export async function detectBackend(context: RunContext): Promise<Detection> {
  const installed = await findToolsets(context);
  const first = installed[0];
  if (first === undefined) {
    throw new KernelError('iptables is not installed: none of iptables-nft, iptables-legacy, iptables runs', {
      tool: 'iptables',
      args: ['--version'],
      code: null,
      stderr: '',
      kind: 'not-found',
    });
  }
  if (installed.length === 1) return { tools: first, why: `only iptables${first.suffix} is installed` };
  const evidence = await Promise.all(installed.map(tools => gatherEvidence(context, tools)));
  evidence.sort((a, b) => Math.sign(b.hints) - Math.sign(a.hints) || b.chains.length - a.chains.length);
  const best = evidence[0] as Evidence;
  if (best.chains.length === 0) return { tools: first, why: 'no neighbour has chains in either backend' };
  const why = `${best.chains.join(', ')} found by iptables${best.tools.suffix}`;
  return { tools: best.tools, why, byNeighbours: true };
}

interface Evidence {
  readonly tools: Toolset;
  readonly hints: number;
  /** Known chains that are there, hints first, each once for both families. */
  readonly chains: readonly string[];
}

async function gatherEvidence(context: RunContext, tools: Toolset): Promise<Evidence> {
  const present = await Promise.all(
    FAMILIES.flatMap(family => [
      presentChains(context, tools, family, 'mangle', HINT_CHAINS),
      presentChains(context, tools, family, 'nat', NEIGHBOUR_CHAINS),
    ]),
  );
  const found = [...HINT_CHAINS, ...NEIGHBOUR_CHAINS].filter(chain => present.flat().includes(chain));
  return { tools, hints: found.filter(chain => HINT_CHAINS.includes(chain)).length, chains: found };
}

/** A chain that cannot be listed, for whatever reason, is no evidence. */
async function presentChains(
  context: RunContext,
  tools: Toolset,
  family: Family,
  table: string,
  chains: readonly string[],
): Promise<readonly string[]> {
  if (!(await mayRead(context, tools, family, table))) return [];
  const outcomes = await Promise.all(
    chains.map(chain =>
      tryTool(context, iptablesTool(tools, family), [...WAIT_ARGS, '-t', table, '-S', chain]),
    ),
  );
  return chains.filter((_, i) => outcomes[i]?.ok === true);
}

/** Whether a table may be read without making it exist: nft reads leave nothing, legacy reads load the table. */
export async function mayRead(
  context: RunContext,
  tools: Toolset,
  family: Family,
  table: string,
): Promise<boolean> {
  if (tools.backend === 'nft') return true;
  const list = `/proc/net/${family === 4 ? 'ip' : 'ip6'}_tables_names`;
  // Without the legacy module the file is not there.
  const outcome = await tryTool(context, 'cat', [list]);
  if (outcome.ok) return outcome.stdout.split('\n').includes(table);
  if (/No such file/.test(outcome.error.stderr)) return false;
  throw outcome.error;
}

export interface Capabilities {
  /** Whether --random-fully is understood for MASQUERADE (iptables 1.6.2 and kernel 3.13 or later). */
  readonly randomFully: boolean;
}

/**
 * Asks what the tools of one family can do: by the help page of the target, which takes no lock and looks at no table.
 * Throws KernelError when they cannot be asked.
 */
export async function probe(context: RunContext, tools: Toolset, family: Family): Promise<Capabilities> {
  const outcome = await tryTool(context, iptablesTool(tools, family), ['-j', 'MASQUERADE', '--help']);
  if (!outcome.ok) throw outcome.error;
  return { randomFully: /--random-fully\b/.test(outcome.stdout) };
}
