// The agent that runs in each namespace for as long as the world lives: it opens, answers and closes TCP and UDP
// sockets on request, so that a probe costs no process.
//
// Its program is the text of the functions below, given to `node -e`: so it runs alike from the sources and from the
// one-file bundle, and is checked like all other code. The price: each of the functions must refer to nothing outside
// itself but its parameters.
import type { Place } from './model.ts';

export interface Receiver {
  readonly protocol: 'tcp' | 'udp';
  readonly address: string;
  readonly port: number;
}

export interface SocketFlow {
  readonly flow: number;
  readonly protocol: 'tcp' | 'udp';
  readonly source: string;
  readonly sourcePort: number;
  readonly destination: string;
  readonly destinationPort: number;
  readonly limitMs: number;
}

/** What the agent is asked for. Every request is answered by an AgentReply with its id. */
export type AgentRequest =
  | { readonly op: 'sysctl'; readonly values: readonly (readonly [path: string, value: string])[] }
  | ({ readonly op: 'listen' } & Receiver)
  | ({ readonly op: 'unlisten' } & Receiver)
  | ({ readonly op: 'open' } & SocketFlow)
  | {
      readonly op: 'exchange';
      readonly flow: number;
      readonly token: number;
      readonly limitMs: number;
    }
  | { readonly op: 'close'; readonly flow: number };

export interface AgentError {
  readonly message: string;
  /** The call that failed: connect and send are the network's doing, others the caller's. */
  readonly call: string;
}

export interface AgentReply {
  readonly id: number;
  /** Of exchange: whether the receiver's answer came. */
  readonly answered?: boolean;
  readonly error?: AgentError;
}

/** Told unasked: a token arrived, from this source. */
export interface Arrival {
  readonly token: number;
  readonly address: string;
  readonly port: number;
}

export type ArrivalAt = Arrival & { readonly at: Place };

type Net = typeof import('node:net');
type Dgram = typeof import('node:dgram');

/** The program, for `node -e`. */
export const agentSource = (): string => `
const net = require('node:net'), dgram = require('node:dgram'), fs = require('node:fs');
const tell = message => process.stdout.write(JSON.stringify(message) + '\\n');
(${serve.toString()})(
  (${makeEars.toString()})(net, dgram, tell),
  (${makeFlows.toString()})(net, dgram),
  (path, value) => fs.writeFileSync(path, value),
  require('node:readline').createInterface({ input: process.stdin }),
  tell,
);`;

/** The receiving side: sockets on single addresses, so that answers leave with the address that was asked. */
function makeEars(net: Net, dgram: Dgram, tell: (arrival: Arrival) => void) {
  const open = new Map<string, () => void>();
  const keyOf = ({ protocol, address, port }: Receiver): string => `${protocol} ${address} ${port}`;
  const hear = (text: string, address: string, port: number): void => {
    for (const token of text.split('\n')) {
      if (token !== '') tell({ token: Number(token), address: address.replace(/%.*/, ''), port });
    }
  };

  const listenTcp = ({ address, port }: Receiver): Promise<() => void> =>
    new Promise((resolve, reject) => {
      const server = net.createServer({ noDelay: true }, socket => {
        const { remoteAddress = '', remotePort = 0 } = socket;
        let rest = '';
        socket.setEncoding('latin1').on('data', (text: string) => {
          const whole = (rest + text).lastIndexOf('\n') + 1;
          hear((rest + text).slice(0, whole), remoteAddress, remotePort);
          socket.write((rest + text).slice(0, whole));
          rest = (rest + text).slice(whole);
        });
        // The other side ends a connection by a reset.
        socket.on('error', () => socket.destroy());
      });
      server.on('error', reject);
      server.listen({ host: address, port, backlog: 1024 }, () => resolve(() => server.close()));
    });

  const listenUdp = ({ address, port }: Receiver): Promise<() => void> =>
    new Promise((resolve, reject) => {
      const socket = dgram.createSocket({ type: address.includes(':') ? 'udp6' : 'udp4' });
      socket.on('error', reject);
      socket.on('message', (text, from) => {
        hear(text.toString('latin1'), from.address, from.port);
        socket.send(text, from.port, from.address, () => {});
      });
      socket.bind({ address, port, exclusive: true }, () => resolve(() => socket.close()));
    });

  return {
    async listen(receiver: Receiver): Promise<void> {
      open.set(keyOf(receiver), await (receiver.protocol === 'tcp' ? listenTcp : listenUdp)(receiver));
    },
    unlisten(receiver: Receiver): void {
      open.get(keyOf(receiver))?.();
      open.delete(keyOf(receiver));
    },
  };
}

/** The sending side. */
function makeFlows(net: Net, dgram: Dgram) {
  interface Line {
    send(text: string, failed: (error: Error) => void): void;
    close(): void;
    /** Why nothing can be sent any more. */
    broken?: Error;
    readonly waiting: Map<number, (answered: boolean) => void>;
  }
  const lines = new Map<number, Line>();
  const answersTo = (waiting: Line['waiting']): ((text: string) => void) => {
    let rest = '';
    return text => {
      const tokens = (rest + text).split('\n');
      rest = tokens.pop() ?? '';
      for (const token of tokens) waiting.get(Number(token))?.(true);
    };
  };

  const openTcp = (flow: SocketFlow): Promise<Line> =>
    new Promise((resolve, reject) => {
      const socket = net.connect({
        host: flow.destination,
        port: flow.destinationPort,
        localAddress: flow.source,
        localPort: flow.sourcePort,
        noDelay: true,
      });
      const waiting: Line['waiting'] = new Map();
      const line: Line = {
        waiting,
        send: (text, failed) => void socket.write(text, error => error && failed(error)),
        // A reset leaves no TIME_WAIT: neither here nor in the node's conntrack table.
        close: () => socket.resetAndDestroy(),
      };
      const timer = setTimeout(() => {
        socket.destroy(
          Object.assign(new Error('connect: no answer within the limit'), { syscall: 'connect' }),
        );
      }, flow.limitMs);
      socket.setEncoding('latin1').on('data', answersTo(waiting));
      socket.on('error', error => {
        clearTimeout(timer);
        line.broken = error;
        reject(error);
        for (const answer of waiting.values()) answer(false);
      });
      socket.on('connect', () => {
        clearTimeout(timer);
        resolve(line);
      });
    });

  const openUdp = (flow: SocketFlow): Promise<Line> =>
    new Promise((resolve, reject) => {
      const socket = dgram.createSocket({
        type: flow.source.includes(':') ? 'udp6' : 'udp4',
      });
      const waiting: Line['waiting'] = new Map();
      const heard = answersTo(waiting);
      socket.on('error', reject);
      socket.on('message', text => heard(text.toString('latin1')));
      socket.bind({ address: flow.source, port: flow.sourcePort, exclusive: true }, () =>
        resolve({
          waiting,
          send: (text, failed) =>
            socket.send(text, flow.destinationPort, flow.destination, error => error && failed(error)),
          close: () => void socket.close(),
        }),
      );
    });

  const lineOf = (flow: number): Line => {
    const line = lines.get(flow);
    if (line === undefined) throw new Error(`no flow ${flow}`);
    if (line.broken !== undefined) throw line.broken;
    return line;
  };

  return {
    async open(flow: SocketFlow): Promise<void> {
      lines.set(flow.flow, await (flow.protocol === 'tcp' ? openTcp : openUdp)(flow));
    },
    exchange: (flow: number, token: number, limitMs: number): Promise<boolean> =>
      new Promise((resolve, reject) => {
        const line = lineOf(flow);
        const end = (): void => {
          clearTimeout(timer);
          line.waiting.delete(token);
        };
        const answer = (answered: boolean): void => {
          end();
          resolve(answered);
        };
        const timer = setTimeout(answer, limitMs, false);
        line.waiting.set(token, answer);
        line.send(`${token}\n`, error => {
          end();
          reject(error);
        });
      }),
    close(flow: number): void {
      lines.get(flow)?.close();
      lines.delete(flow);
    },
  };
}

/** Reads requests, one JSON text a line, and answers each. */
function serve(
  ears: ReturnType<typeof makeEars>,
  flows: ReturnType<typeof makeFlows>,
  writeFile: (path: string, value: string) => void,
  input: import('node:readline').Interface,
  tell: (reply: AgentReply) => void,
): void {
  const carryOut = async (request: AgentRequest): Promise<boolean | void> => {
    if (request.op === 'listen') return ears.listen(request);
    if (request.op === 'unlisten') return ears.unlisten(request);
    if (request.op === 'open') return flows.open(request);
    if (request.op === 'exchange') return flows.exchange(request.flow, request.token, request.limitMs);
    if (request.op === 'close') return flows.close(request.flow);
    for (const [path, value] of request.values) writeFile(`/proc/sys/net/${path}`, value);
    return undefined;
  };
  input.on('line', text => {
    const { id, ...request } = JSON.parse(text) as AgentRequest & { id: number };
    carryOut(request).then(
      answered => tell(answered === undefined ? { id } : { id, answered }),
      (error: NodeJS.ErrnoException) =>
        tell({ id, error: { message: error.message, call: error.syscall ?? '' } }),
    );
  });
}
