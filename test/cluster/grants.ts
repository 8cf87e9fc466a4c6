// What the API server's roles let somebody do, as the server itself says it.
import { expect } from 'vitest';
import type { ApiClient } from './client.ts';
import { create } from './objects.ts';

/** GROUP/RESOURCE, with a space and the name where the right is for one object → verbs in order. */
export type Grants = Readonly<Record<string, readonly string[]>>;

interface Review {
  readonly status: {
    readonly resourceRules: readonly {
      readonly verbs: readonly string[];
      readonly apiGroups?: readonly string[];
      readonly resources?: readonly string[];
      readonly resourceNames?: readonly string[];
    }[];
    readonly nonResourceRules: readonly {
      readonly verbs: readonly string[];
      readonly nonResourceURLs?: readonly string[];
    }[];
  };
}

/** All rights of the client's user in a namespace, cluster-wide ones among them; URLs count as resources of no group. */
export async function grantsOf(client: ApiClient, namespace: string): Promise<Grants> {
  const path = '/apis/authorization.k8s.io/v1/selfsubjectrulesreviews';
  const answer = await create(client, path, { spec: { namespace } });
  expect(answer.status, JSON.stringify(answer.body)).toBe(201);
  const { resourceRules, nonResourceRules } = (answer.body as Review).status;
  const grants = new Map<string, Set<string>>();
  const add = (key: string, verbs: readonly string[]): void => {
    grants.set(key, new Set([...(grants.get(key) ?? []), ...verbs]));
  };
  for (const { apiGroups = [], resources = [], resourceNames, verbs } of resourceRules) {
    for (const group of apiGroups)
      for (const resource of resources)
        for (const name of resourceNames ?? ['']) add(`${group}/${resource} ${name}`.trimEnd(), verbs);
  }
  for (const { nonResourceURLs = [], verbs } of nonResourceRules)
    for (const url of nonResourceURLs) add(url, verbs);
  return Object.fromEntries([...grants].map(([key, verbs]) => [key, [...verbs].sort()]));
}

/** The first without what the second has too. */
export function without(grants: Grants, others: Grants): Grants {
  const rest = Object.entries(grants).map(
    ([key, verbs]) => [key, verbs.filter(verb => others[key]?.includes(verb) !== true)] as const,
  );
  return Object.fromEntries(rest.filter(([, verbs]) => verbs.length > 0));
}
