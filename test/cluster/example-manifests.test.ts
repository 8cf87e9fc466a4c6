// What the examples folder shows must be taken by a real API server as it stands.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ApiServer, startApiServer } from './api-server.ts';
import { create, installCrds, type KubeObject, readObjects, refusalOf, resourceOf } from './objects.ts';

const examples = await readObjects('examples');

const groupKind = (object: KubeObject): string => `${object.apiVersion} ${object.kind}`;

describe('the examples on a real API server', () => {
  let server: ApiServer;
  let resources: ReadonlyMap<string, string>;

  beforeAll(async () => {
    const signal = new AbortController().signal;
    server = await startApiServer({}, signal);
    const crds = [
      ...(await installCrds(server.client, await readObjects('crds'), signal)),
      ...(await installCrds(server.client, await readObjects('test/fixtures/calico/crds.yaml'), signal)),
    ];
    resources = new Map([
      ['v1 Node', '/api/v1/nodes'],
      ...crds.map(crd => {
        const version = crd.spec.versions[0]?.name ?? '';
        return [`${crd.spec.group}/${version} ${crd.spec.names.kind}`, resourceOf(crd)] as const;
      }),
    ]);
  });
  afterAll(() => server?.close());

  it('have policies and pools among them', () => {
    const kinds = new Set(examples.map(example => example.kind));
    expect(kinds).toContain('MasqPolicy');
    expect(kinds).toContain('IPPool');
  });

  it.each(examples.map(object => [`${groupKind(object)} ${object.metadata.name}`, object] as const))(
    '%s is accepted',
    async (_, object) => {
      const resource = resources.get(groupKind(object));
      expect(resource, `no API server resource for ${groupKind(object)}`).toBeDefined();
      const response = await create(server.client, resource ?? '', object);
      expect(response.status, refusalOf(response).message).toBe(201);
    },
  );
});
