import type { ServerResponse } from 'node:http';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { createLineReader } from '../../src/cluster/lines.ts';
import { waitFor } from '../cluster/wait.ts';
import { type Closers, failureOf, type Handler, type Keys, makeKeys, serve } from './cluster-server.ts';

let keys: Keys;
const closers: Closers = [];

beforeAll(async () => {
  keys = await makeKeys();
});
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close();
});

/** A watch of a server whose answers the test writes. */
async function watching(handler: Handler, silenceMs = 5_000) {
  const { server, api } = await serve(keys, closers, handler);
  const stop = new AbortController();
  const watch = api.watch('/things?watch=1&continue=x', { silenceMs }, stop.signal);
  return { server, api, stop, watch, iterator: watch[Symbol.asyncIterator]() };
}

/** All documents until the watch ends. */
async function documentsOf(watch: AsyncIterable<readonly unknown[]>): Promise<readonly unknown[]> {
  const all: unknown[] = [];
  for await (const batch of watch) all.push(...batch);
  return all;
}

const inPieces =
  (...pieces: (string | Buffer)[]): Handler =>
  response => {
    const next = (left: readonly (string | Buffer)[]): void => {
      const [piece, ...more] = left;
      if (piece === undefined) response.end();
      // So that each is a chunk of its own.
      else response.write(piece, () => setTimeout(() => next(more), 2));
    };
    next(pieces);
  };

describe('a watch', () => {
  it('gives documents as they come, after a batch that says it is open', async () => {
    let write: (text: string) => void = () => {};
    const t = await watching(response => {
      write = text => void response.write(text);
      response.flushHeaders();
    });
    expect((await t.iterator.next()).value).toEqual([]);
    write('{"n":1}\n{"n":2}\n{"n":');
    expect((await t.iterator.next()).value).toEqual([{ n: 1 }, { n: 2 }]);
    write('3}\n\n \n');
    expect((await t.iterator.next()).value).toEqual([{ n: 3 }]);
    expect(t.server.requests[0]?.message.headers.authorization).toBe('Bearer s3cret');
  });

  it('takes documents of 1.5 MB, and pieces that end inside a character', async () => {
    const large = { text: 'ü€😀'.repeat(170_000) };
    const bytes = Buffer.from(`${JSON.stringify(large)}\n`);
    expect(bytes.length).toBeGreaterThan(1_500_000);
    const pieces = [0, 1, 2, 3, 5, 7].map((cut, i, cuts) =>
      bytes.subarray(cut * 200_001, i + 1 < cuts.length ? (cuts[i + 1] ?? 0) * 200_001 : undefined),
    );
    const t = await watching(inPieces(...pieces));
    expect(await documentsOf(t.watch)).toEqual([large]);
  });

  it('hands on a Status, and what has no line end', async () => {
    const status = { type: 'ERROR', object: { kind: 'Status', code: 410 } };
    const t = await watching(inPieces(`${JSON.stringify(status)}\n`, '{"kind":"Status"}'));
    expect(await documentsOf(t.watch)).toEqual([status, { kind: 'Status' }]);
  });

  it.each([
    [
      'that is refused',
      { status: 403, headers: {}, body: { message: 'no', reason: 'Forbidden' } },
      undefined,
    ],
    [
      'that is too old',
      { status: 410, headers: {}, body: { message: 'no', reason: 'Forbidden' } },
      undefined,
    ],
    [
      'that comes too often',
      { status: 429, headers: { 'retry-after': '3' }, body: { message: 'no', reason: 'Forbidden' } },
      3_000,
    ],
  ])('%s fails with the status', async (_, { status, headers, body }, retryAfterMs) => {
    const t = await watching(response => {
      response.writeHead(status, headers as Record<string, string>);
      response.end(JSON.stringify(body));
    });
    const error = await failureOf(t.iterator.next());
    expect(error).toMatchObject({
      message: `GET /things: ${status}: no`,
      status,
      reason: 'Forbidden',
      retryAfterMs,
    });
  });

  it.each([
    ['says what is not JSON', inPieces('{"a":1}\n', 's3cret words\n'), 'the watch said what is not JSON'],
    ['ends within a document', inPieces('{"a":1}\n', '{"b":'), 'the watch said what is not JSON'],
    [
      'is broken off',
      (response: ServerResponse) => response.write('{}\n', () => response.destroy()),
      'aborted',
    ],
  ])('that %s fails', async (_, handler: Handler, why) => {
    const t = await watching(handler);
    const error = await failureOf(documentsOf(t.watch));
    expect(error.message).toBe(`GET /things: ${why}`);
    expect(error.status).toBeUndefined();
  });

  it('that is silent is given up; the next request uses another connection', async () => {
    const t = await watching((response, { url }) => {
      if (url === '/x') response.end('{}');
      else response.write('{"n":1}\n');
    }, 200);
    const start = performance.now();
    const error = await failureOf(documentsOf(t.watch));
    expect(error.message).toBe('GET /things: nothing was heard for 0.2 s');
    expect(performance.now() - start).toBeLessThan(2_000);
    await waitFor(() => (t.server.open === 0 ? true : undefined), {
      what: 'it to be closed',
      limitMs: 5_000,
    });
  });

  it('that never opens is given up as silent', async () => {
    const t = await watching(() => {}, 200);
    expect((await failureOf(t.iterator.next())).message).toBe('GET /things: nothing was heard for 0.2 s');
  });

  it('is not silent while its reader is at work', async () => {
    let write: (text: string) => void = () => {};
    const t = await watching(response => {
      write = text => void response.write(text);
      response.write('{"n":1}\n');
    }, 200);
    await t.iterator.next();
    await t.iterator.next();
    await new Promise(resolve => setTimeout(resolve, 500));
    write('{"n":2}\n');
    expect((await t.iterator.next()).value).toEqual([{ n: 2 }]);
  });

  it('does not run ahead of a slow reader', async () => {
    let written = 0;
    const line = `${JSON.stringify({ text: 'x'.repeat(100_000) })}\n`;
    const t = await watching(response => {
      const more = (): void => {
        if (response.destroyed || written > 100_000_000) return void response.end();
        written += line.length;
        if (response.write(line)) setImmediate(more);
        else response.once('drain', more);
      };
      more();
    });
    await t.iterator.next();
    await t.iterator.next();
    let before = -1;
    const still = (): true | undefined => {
      const same = written === before;
      before = written;
      return same ? true : undefined;
    };
    await waitFor(still, { what: 'the server to wait', limitMs: 10_000, intervalMs: 200 });
    expect(written).toBeLessThan(20_000_000);
    await t.iterator.next();
    await waitFor(async () => ((await t.iterator.next(), written > before) ? true : undefined), {
      what: 'the server to go on',
      limitMs: 10_000,
      intervalMs: 0,
    });
  });

  it.each(['before it began', 'while it is opened', 'while it waits', 'while its reader is at work'])(
    'ends on an abort %s, with its reason',
    async when => {
      const t = await watching(response => {
        if (when !== 'while it is opened') response.write('{"n":1}\n');
      });
      const reason = new Error('enough');
      if (when === 'before it began') t.stop.abort(reason);
      const next = t.iterator.next();
      if (when === 'while it is opened')
        await waitFor(() => t.server.requests[0], { what: 'the request', limitMs: 5_000 });
      if (when.startsWith('while its') || when === 'while it waits') {
        await next;
        await t.iterator.next();
      }
      const later = when === 'while it waits' ? t.iterator.next() : undefined;
      t.stop.abort(reason);
      if (when === 'before it began' || when === 'while it is opened')
        await expect(next).rejects.toBe(reason);
      else await expect(later ?? t.iterator.next()).rejects.toBe(reason);
      await waitFor(() => (t.server.open === 0 ? true : undefined), {
        what: 'it to be closed',
        limitMs: 5_000,
      });
    },
  );

  it.each([-1, 0])('is closed when its reader turns away after more than %i documents', async skipped => {
    const t = await watching(response => response.write('{"n":1}\n'));
    for await (const batch of t.watch) if (batch.length > skipped) break;
    await waitFor(() => (t.server.open === 0 ? true : undefined), {
      what: 'it to be closed',
      limitMs: 5_000,
    });
  });
});

describe('lines', () => {
  it('may be cut anywhere', () => {
    const text = 'erste Zeile ü\n\n€ zweite\r\n😀\nrest';
    const bytes = Buffer.from(text);
    for (let a = 0; a <= bytes.length; a++) {
      for (let b = a; b <= bytes.length; b++) {
        const reader = createLineReader(100);
        const lines = [bytes.subarray(0, a), bytes.subarray(a, b), bytes.subarray(b)].flatMap(it =>
          reader.push(it),
        );
        expect([...lines, ...reader.end()]).toEqual(['erste Zeile ü', '€ zweite\r', '😀', 'rest']);
      }
    }
  });

  it('may not be longer than the limit', () => {
    const reader = createLineReader(10);
    reader.push(Buffer.from('12345\n12345'));
    reader.push(Buffer.from('67890'));
    expect(() => reader.push(Buffer.from('1'))).toThrow('a line is longer than 10 characters');
  });
});
