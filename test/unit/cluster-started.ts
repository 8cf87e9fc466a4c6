// A list-and-watch that runs against what a test has the API say.
import type { ApiAnswer } from '../../src/cluster/api.ts';
import {
  type Change,
  createListWatch,
  type Health,
  type ListWatchParts,
} from '../../src/cluster/list-watch.ts';
import {
  type FakeApi,
  type FakeParts,
  fakeApi,
  recordingLog,
  refusal,
  virtualClock,
} from './cluster-fake.ts';

export const PATH = '/apis/example.org/v1/things';

/** A list-and-watch that runs until the end of the test. */
export function started(fake: FakeParts, parts: Partial<ListWatchParts> = {}) {
  const clock = virtualClock();
  const api: FakeApi = fakeApi(fake);
  const changes: Change[] = [];
  const healths: Health[] = [];
  const log = recordingLog();
  const stop = new AbortController();
  const listWatch = createListWatch({
    api,
    resource: { path: PATH },
    clock,
    wallClock: () => 1_000_000 + clock.now(),
    random: () => 0.5,
    log,
    onChange: change => changes.push(change),
    onHealth: health => healths.push(health),
    ...parts,
  });
  const running = listWatch.run(stop.signal);
  const seen = (): readonly string[] => changes.map(({ type, object }) => `${type} ${object.metadata.name}`);
  return { clock, api, changes, seen, healths, log, stop, running, listWatch };
}

/** Answers in their order; the last one again and again. */
export const inOrder =
  (...answers: (ApiAnswer | Error)[]): NonNullable<FakeParts['answer']> =>
  (_, count) => {
    const answer = answers[Math.min(count, answers.length) - 1];
    if (answer instanceof Error) return Promise.reject(answer);
    return answer ?? refusal(500);
  };
