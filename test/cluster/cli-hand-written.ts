// Objects as an operator and appliers could have written them, put on an API server by hand.
import { expect } from 'vitest';
import type { ApiServer } from './api-server.ts';
import { create, refusalOf } from './objects.ts';

export const PLAN = {
  apiVersion: 'natoutgoing.io/v1alpha1',
  kind: 'MasqPlan',
  metadata: { name: 'plan-a' },
  spec: {
    schemaVersion: 1,
    plan: 'plan-a',
    part: 0,
    of: 1,
    contentHash: '0123456789abcdef',
    sets: [],
    policies: [],
    poolDefault: { source: 'a', spared: 'b', addresses: {}, portAllocation: 'FullyRandom' },
    kubeMark: 0x4000,
    tunnelInterfaces: [],
  },
};

/** Creates the object. */
export async function putOn(server: ApiServer, resource: string, object: object): Promise<void> {
  const answer = await create(server.client, resource, object);
  expect(answer.status, refusalOf(answer).message).toBe(201);
}

/** Writes members of the status. */
export async function tellOn(server: ApiServer, path: string, said: object): Promise<void> {
  const answer = await server.client.request('PATCH', `${path}/status?fieldValidation=Strict`, {
    body: { status: said },
    contentType: 'application/merge-patch+json',
  });
  expect(answer.status, refusalOf(answer).message).toBe(200);
}

export const condition = (type: string, status: string, reason: string, message = 'as told') => ({
  type,
  status,
  reason,
  message,
  lastTransitionTime: '2026-01-01T00:00:00Z',
});

/** A MicroTime, which wants six digits. */
export const renewed = (secondsAgo: number): string =>
  new Date(Date.now() - secondsAgo * 1000).toISOString().replace('Z', '000Z');
