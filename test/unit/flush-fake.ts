// A table of connections in memory, listed and deleted by the arguments of the tool conntrack, and a fake `ip`.
import type { ConntrackEntry, ConntrackTuple } from '../../src/kernel/conntrack.ts';
import type { Command, CommandResult, Exec } from '../../src/kernel/exec.ts';
import { formatAddress } from '../../src/cidr/address.ts';

export interface FakeTable {
  readonly exec: Exec;
  /** Every command that was run, as one line. */
  readonly commands: readonly string[];
  /** Ids of the entries that are there. */
  left(): readonly number[];
}

/** How the fake answers a command instead of doing it; undefined: it does it. */
export type Interference = (command: Command) => Partial<CommandResult> | undefined;

export function fakeTable(
  entries: readonly ConntrackEntry[],
  interfere: Interference = () => undefined,
): FakeTable {
  let table = [...entries];
  const commands: string[] = [];
  const conntrack = ([verb, ...args]: readonly string[]): Partial<CommandResult> => {
    const options = optionsOf(args);
    const found = table.filter(entry => [...options].every(([name, value]) => agrees(entry, name, value)));
    const stdout = found.map(entry => `${lineOf(entry)}\n`).join('');
    if (verb === '-L') return { stdout };
    table = table.filter(entry => !found.includes(entry));
    const stderr = `conntrack v1.4.7 (conntrack-tools): ${found.length} flow entries have been deleted.\n`;
    return { stdout, stderr, code: found.length === 0 ? 1 : 0 };
  };
  return {
    commands,
    left: () => table.map(({ id }) => id),
    exec: {
      run: async command => {
        commands.push([command.tool, ...command.args].join(' '));
        const done = interfere(command) ?? (command.tool === 'conntrack' ? conntrack(command.args) : {});
        return { code: 0, stdout: '', stderr: '', timedOut: false, ...done };
      },
    },
  };
}

function optionsOf(args: readonly string[]): ReadonlyMap<string, string> {
  const options = new Map<string, string>();
  for (let i = 0; i < args.length; i += 2) options.set(args[i] as string, args[i + 1] as string);
  return options;
}

function agrees(entry: ConntrackEntry, name: string, value: string): boolean {
  const { original, reply } = entry;
  const is: Readonly<Record<string, string | number | undefined>> = {
    '-o': value,
    '-f': entry.family === 4 ? 'ipv4' : 'ipv6',
    '-p': entry.protocol,
    '-w': entry.zone,
    '-s': formatAddress(original.source),
    '-d': formatAddress(original.destination),
    '-r': formatAddress(reply.source),
    '-q': formatAddress(reply.destination),
    '--sport': original.sourcePort,
    '--dport': original.destinationPort,
    '--reply-port-src': reply.sourcePort,
    '--reply-port-dst': reply.destinationPort,
    [`--icmp${entry.family === 4 ? '' : 'v6'}-type`]: original.icmp?.type,
    [`--icmp${entry.family === 4 ? '' : 'v6'}-code`]: original.icmp?.code,
    [`--icmp${entry.family === 4 ? '' : 'v6'}-id`]: original.icmp?.id,
  };
  if (!Object.hasOwn(is, name)) throw new Error(`conntrack has no option ${name} here`);
  return `${is[name]}` === value;
}

const NAMES: Readonly<Record<number, string>> = { 1: 'icmp', 6: 'tcp', 17: 'udp', 58: 'icmpv6', 132: 'sctp' };

function lineOf({ protocol, original, reply, zone, id, directionalZone }: ConntrackEntry): string {
  const zoned = zone === 0 ? '' : ` zone=${zone}`;
  const oneWay = directionalZone ? ' zone-orig=5' : '';
  const name = NAMES[protocol] ?? 'unknown';
  return `${name.padEnd(8)} ${protocol} 99 ${tupleText(original)}${oneWay} ${tupleText(reply)} mark=0${zoned} use=1 id=${id}`;
}

function tupleText({ source, destination, sourcePort, destinationPort, icmp }: ConntrackTuple): string {
  const addresses = `src=${formatAddress(source)} dst=${formatAddress(destination)}`;
  if (sourcePort !== undefined) return `${addresses} sport=${sourcePort} dport=${destinationPort}`;
  return icmp === undefined ? addresses : `${addresses} type=${icmp.type} code=${icmp.code} id=${icmp.id}`;
}
