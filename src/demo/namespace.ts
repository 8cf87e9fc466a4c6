// One namespace of the world: the agent in it, which keeps it alive, and the helper for raw packets once it is needed.
import type { Exec } from '../kernel/exec.ts';
import { type AgentReply, type AgentRequest, agentSource, type Arrival } from './agent.ts';
import {
  execInNamespacesOf,
  inNamespacesOf,
  inNewNamespaces,
  type LineChild,
  startLineChild,
} from './children.ts';
import type { Place } from './model.ts';
import { RAW_HELPER, type RawPacket, readRaw, readRawLine, sendRawLine } from './raw.ts';

export interface Namespace {
  readonly place: Place;
  readonly pid: number;
  readonly exec: Exec;
  /** Asks the agent. Rejects when the agent is gone; a call that failed is an error in the reply. */
  request(request: AgentRequest): Promise<AgentReply>;
  /** Starts the helper for raw packets if need be; resolves when it hears. */
  readyForRaw(): Promise<void>;
  /** After readyForRaw. What becomes of it is told by the events. */
  sendRaw(token: number, packet: RawPacket, source: string, destination: string): void;
  close(): Promise<void>;
}

/** What comes from a namespace unasked. */
export interface NamespaceEvents {
  arrived(place: Place, arrival: Arrival): void;
  /** The answer to a raw packet came back, or (with a failure) the packet could not be sent. */
  answered(token: number, failure?: string): void;
}

/** Makes the namespace. Failures show in the first request. */
export function openNamespace(place: Place, events: NamespaceEvents): Namespace {
  const pending = new Map<number, (reply: AgentReply) => void>();
  let nextId = 1;
  const agent = startLineChild(inNewNamespaces([process.execPath, '-e', agentSource()]), line => {
    const message = JSON.parse(line) as AgentReply | Arrival;
    if ('token' in message) return events.arrived(place, message);
    pending.get(message.id)?.(message);
    pending.delete(message.id);
  });
  const gone = agent.ended.then(how => {
    throw new Error(`the namespace "${place}" is gone (${how})`);
  });
  // Whoever asks is told; nobody asking is no error.
  gone.catch(() => {});
  let raw: ReturnType<typeof openRaw> | undefined;
  const openedRaw = (): ReturnType<typeof openRaw> => (raw ??= openRaw(place, agent.pid, events));
  return {
    place,
    pid: agent.pid,
    exec: execInNamespacesOf(agent.pid),
    request: request => {
      const id = nextId++;
      const reply = new Promise<AgentReply>(resolve => pending.set(id, resolve));
      agent.send(JSON.stringify({ id, ...request }));
      return Promise.race([reply, gone]);
    },
    readyForRaw: () => openedRaw().ready,
    sendRaw: (token, packet, source, destination) =>
      openedRaw().helper.send(sendRawLine(token, packet, source, destination)),
    close: async () => {
      await Promise.all([raw?.helper.close(), agent.close()]);
    },
  };
}

function openRaw(
  place: Place,
  pid: number,
  events: NamespaceEvents,
): { ready: Promise<void>; helper: LineChild } {
  let isReady: () => void;
  const helper = startLineChild(inNamespacesOf(pid, ['perl', '-e', RAW_HELPER]), text => {
    const line = readRawLine(text);
    if ('ready' in line) return isReady();
    if ('failed' in line) return events.answered(line.failed, line.message);
    const message = readRaw(line.heard);
    if (message === undefined) return;
    if (message.kind === 'answer') return events.answered(message.token);
    events.arrived(place, { token: message.token, address: line.source, port: message.port });
  });
  const ready = new Promise<void>((resolve, reject) => {
    isReady = resolve;
    void helper.ended.then(how => reject(new Error(`the raw socket helper in "${place}" is gone (${how})`)));
  });
  ready.catch(() => {});
  return { ready, helper };
}
