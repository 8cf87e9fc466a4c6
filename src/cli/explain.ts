import { Command, InvalidArgumentError, Option } from 'commander';
import type { Protocol } from '../api/model.ts';
import { type Address, formatAddress, parseAddress } from '../cidr/address.ts';
import { decide, type Decider, type DecidingNode, type Decision, type TraceStep } from '../planner/decide.ts';
import type { Packet } from '../planner/packet.ts';
import { poolOf } from '../planner/pool-of.ts';
import { hostAddresses, isThisHost } from './host.ts';
import { lookForOthers, lookText } from './others.ts';
import { CommandError, EXIT, type ExitCode, type Io, json } from './io.ts';
import { anyRefused, complaints, type Loaded, load } from './load.ts';
import { type OutputFormat, type PlanningOptions, withOutput, withPlanning } from './options.ts';

interface Options extends PlanningOptions {
  readonly src: Address;
  readonly dst: Address;
  readonly protocol?: Protocol | number;
  readonly dport?: number;
  readonly outInterface?: string;
  readonly mark: number;
  readonly kernel: boolean;
  readonly output: OutputFormat;
}

export const explainCommand = (io: Io, exit: (code: ExitCode) => void): Command =>
  withOutput(withPlanning(new Command('explain')))
    .description('say which rule decides about a packet, and why')
    .addOption(new Option('--src <ip>', 'source address').argParser(parseIp).makeOptionMandatory())
    .addOption(
      new Option('--dst <ip>', "destination address, after a Service's translation")
        .argParser(parseIp)
        .makeOptionMandatory(),
    )
    .addOption(
      new Option('--protocol <name>', 'tcp, udp, sctp, icmp or an IP protocol number').argParser(
        parseProtocol,
      ),
    )
    .addOption(new Option('--dport <port>', 'destination port').argParser(parsePort))
    .addOption(new Option('--out-interface <name>', 'interface by which the packet leaves the node'))
    .addOption(new Option('--mark <mark>', "the packet's mark").argParser(parsePacketMark).default(0, '0x0'))
    .addOption(new Option('--no-kernel', "do not look for other programs' rules in this host's kernel"))
    .addHelpText(
      'after',
      `
Examples:
  natoutgoing explain -f manifests/ --node worker-1 --src 10.244.1.5 --dst 192.0.2.10 --protocol tcp --dport 443
  natoutgoing explain --context production --no-kernel --node worker-1 --src 10.244.1.5 --dst 192.0.2.10

Without -f the objects of the cluster are read.
As root, and of a cluster only where this host is the node, it also looks for rules of other programs in the kernel
that win over ours, or come after us; when it does not look it says so.
What is not given is unknown, and the answer says which rules depend on it.
Exit codes: 0 done; 1 an object was refused (the answer is without it); 2 wrong usage or error.`,
    )
    .action(async (options: Options) => {
      if (options.src.family !== options.dst.family) {
        throw new CommandError('--src and --dst are addresses of two families');
      }
      const loaded = await load(options, io);
      for (const line of complaints(loaded)) io.err(`${line}\n`);
      const packet = packetOf(options);
      const { nodes } = loaded.manifests.snapshot;
      const isHere = options.filename !== undefined || (await isThisHost(options.node, nodes, io.signal));
      // Only tunnel rules ask which addresses are the node's own.
      const asksOwn = isHere && options.tunnelInterface.length > 0;
      const explanation = explain(loaded, packet, asksOwn ? await hostAddresses(io.signal) : undefined);
      const look = await lookForOthers(isHere, packet, options, io.signal);
      io.out(
        options.output === 'json'
          ? json({ ...explanation, ...look })
          : `${asText(explanation)}${lookText(look)}`,
      );
      exit(anyRefused(loaded.manifests) ? EXIT.refused : EXIT.ok);
    });

type PacketOptions = Pick<Options, 'src' | 'dst' | 'protocol' | 'dport' | 'outInterface' | 'mark'>;

export const packetOf = (options: PacketOptions): Packet => ({
  source: options.src,
  destination: options.dst,
  ...(options.protocol === undefined ? {} : { protocol: options.protocol }),
  ...(options.dport === undefined ? {} : { destinationPort: options.dport }),
  ...(options.outInterface === undefined ? {} : { outInterface: options.outInterface }),
  mark: options.mark,
});

export interface Explanation {
  readonly action: Decision['action'];
  readonly by:
    | { policy: string; rule: string | null }
    | { ipPool: string }
    | { mark: string }
    | { tunnel: string }
    | null;
  readonly address?: string;
  readonly portRange?: { readonly start: number; readonly end: number };
  readonly reason: string;
  readonly steps: readonly string[];
  readonly uncertain: readonly string[];
  readonly counted: readonly { readonly policy: string; readonly rule: string }[];
}

/** Which rule decides about the packet on the loaded node, as data for people and programs. */
export function explain(
  loaded: Loaded,
  packet: Packet,
  localAddresses?: DecidingNode['localAddresses'],
): Explanation {
  const node = { values: loaded.values, ...(localAddresses === undefined ? {} : { localAddresses }) };
  const decision = decide(loaded.plan, node, packet, { trace: true });
  const pool = poolOf(loaded.manifests.snapshot.pools, packet.source)?.name ?? '';
  return {
    action: decision.action,
    by: deciderOf(decision.by, pool),
    ...(decision.address === undefined ? {} : { address: formatAddress(decision.address) }),
    ...(decision.portRange === undefined ? {} : { portRange: decision.portRange }),
    reason: reasonOf(decision, pool),
    steps: (decision.trace ?? []).map(stepText),
    uncertain: decision.uncertain.map(nameOf),
    counted: decision.counted,
  };
}

function deciderOf(by: Decider | null, pool: string): Explanation['by'] {
  if (by === null) return null;
  if ('rule' in by) return by;
  if ('policy' in by) return { policy: by.policy, rule: null };
  if ('poolDefault' in by) return { ipPool: pool };
  if ('tunnel' in by) return by;
  return { mark: `0x${by.mark.toString(16)}` };
}

function reasonOf(decision: Decision, pool: string): string {
  const { by } = decision;
  if (by === null) return 'no rule of ours matches: other programs decide, else the packet keeps its address';
  if ('rule' in by) return `rule ${by.rule} of policy ${by.policy} is the first that matches`;
  if ('policy' in by) return `no rule of policy ${by.policy} matches, and its defaultAction decides`;
  if ('poolDefault' in by)
    return `the source is in IPPool ${pool}, which has natOutgoing, and the destination is in no pool`;
  if ('tunnel' in by) return `host traffic into tunnel ${by.tunnel} needs the tunnel's own address`;
  return 'the mark is the one by which kube-proxy masquerades, so we leave the packet to it';
}

function nameOf(asked: TraceStep['asked']): string {
  if ('rule' in asked) return `${asked.policy}/${asked.rule}`;
  if ('default' in asked) return `${asked.policy} defaultAction`;
  if ('policy' in asked) return asked.policy;
  if ('poolDefault' in asked) return 'natOutgoing of IPPools';
  if ('tunnel' in asked) return `tunnel ${asked.tunnel}`;
  return 'kube-proxy mark';
}

const stepText = (step: TraceStep): string =>
  `${nameOf(step.asked)}: ${step.outcome}${step.because === undefined ? '' : ` (${step.because})`}`;

function asText(explanation: Explanation): string {
  const lines = [
    `${explanation.action}${explanation.address === undefined ? '' : ` to ${explanation.address}`}`,
    `  ${explanation.reason}`,
    ...explanation.steps.map(step => `  - ${step}`),
    ...explanation.uncertain.map(
      name => `  ? ${name} depends on what is not given; it was taken not to match`,
    ),
    ...explanation.counted.map(({ policy, rule }) => `  dry run: ${policy}/${rule} would decide`),
  ];
  return lines.map(line => `${line}\n`).join('');
}

export function parseIp(text: string): Address {
  const parsed = parseAddress(text);
  if (!parsed.ok) throw new InvalidArgumentError(`${JSON.stringify(text)} ${parsed.reason}.`);
  return parsed.value;
}

export function parseProtocol(text: string): Protocol | number {
  const name = text.toUpperCase().replace(/^(IPV6-ICMP|ICMPV6)$/, 'ICMP');
  const known = (['TCP', 'UDP', 'SCTP', 'ICMP'] as const).find(protocol => protocol === name);
  if (known !== undefined) return known;
  if (/^\d{1,3}$/.test(text) && Number(text) <= 255) return Number(text);
  throw new InvalidArgumentError('tcp, udp, sctp, icmp or a number of 0 to 255 is expected.');
}

function parsePort(text: string): number {
  if (/^\d{1,5}$/.test(text) && Number(text) >= 1 && Number(text) <= 65_535) return Number(text);
  throw new InvalidArgumentError('A port of 1 to 65535 is expected.');
}

function parsePacketMark(text: string): number {
  const mark = /^(0x[0-9a-fA-F]{1,8}|[0-9]{1,10})$/.test(text) ? Number(text) : Number.NaN;
  if (mark <= 0xffffffff) return mark;
  throw new InvalidArgumentError('A mark of 32 bits is expected, such as 0x4000.');
}
