// What the tests about rules of others share: a packet from a pod to the internet, its judgement, and its fate.
import { expect } from 'vitest';
import { parseAddress } from '../../src/cidr/address.ts';
import { type Cidr, parseCidr } from '../../src/cidr/cidr.ts';
import type { World } from '../../src/demo/model.ts';
import type { Exec } from '../../src/kernel/exec.ts';
import {
  type Judgement,
  judgeForeign,
  readForeignFacts,
  readNatRules,
} from '../../src/kernel/foreign/judge.ts';
import { trafficOf } from '../../src/kernel/foreign/model.ts';
import type { Packet } from '../../src/planner/packet.ts';
import { addressOf, type Names } from './scene.ts';

const PORT = 443;
export const address = (text: string): Packet['source'] => {
  const parsed = parseAddress(text);
  if (!parsed.ok) throw new Error(`${text} ${parsed.reason}`);
  return parsed.value;
};

export const cidr = (text: string): Cidr => {
  const parsed = parseCidr(text);
  if (!parsed.ok) throw new Error(`${text} ${parsed.reason}`);
  return parsed.value;
};

/** From a pod to the internet. */
export const packetOf = (n: Names): Packet => ({
  source: address(n.pod),
  destination: address(n.internet),
  protocol: 'UDP',
  destinationPort: PORT,
  outInterface: 'eth0',
});

export async function judge(exec: Exec, packet: Packet): Promise<Judgement> {
  const rules = await readNatRules(exec, packet.source.family);
  expect(rules.gaps).toEqual([]);
  return judgeForeign(rules, trafficOf(packet), await readForeignFacts(exec, rules, packet));
}

/** What the outside sees of the packet. */
export const seen = async (world: World, n: Names): Promise<string> =>
  addressOf(
    await world.send({
      from: 'pod',
      source: n.pod,
      destination: n.internet,
      protocol: 'udp',
      destinationPort: PORT,
    }),
  );

export async function sh(world: World, script: string): Promise<void> {
  const result = await world.exec.run({ tool: 'sh', args: ['-e'], stdin: script, timeoutMs: 20_000 });
  if (result.code !== 0) throw new Error(`${script}\n${result.stderr}`);
}

export async function nft(world: World, input: string): Promise<void> {
  const result = await world.exec.run({ tool: 'nft', args: ['-f', '-'], stdin: input, timeoutMs: 20_000 });
  if (result.code !== 0) throw new Error(`${input}\n${result.stderr}`);
}
