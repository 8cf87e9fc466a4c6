import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { formatAddress } from '../../src/cidr/address.ts';
import { formatCidr } from '../../src/cidr/cidr.ts';
import type { Fault, MasqPolicy } from '../../src/api/model.ts';
import { member } from '../../src/api/report.ts';
import { validateMasqPolicy } from '../../src/api/validate-policy.ts';
import { invalidPolicies, validPolicies } from '../fixtures/policies.ts';
import { minimal, policy, rule, withCidr, withRule } from '../fixtures/policy-builder.ts';

function must(object: unknown): MasqPolicy {
  const read = validateMasqPolicy(object);
  if (!read.ok) throw new Error(JSON.stringify(read.faults));
  return read.value;
}

function faultsOf(object: unknown): readonly Fault[] {
  const read = validateMasqPolicy(object);
  if (read.ok) throw new Error('accepted');
  return read.faults;
}

describe('the table of policies', () => {
  it('is as large as it should be, and names are unique', () => {
    const names = [...validPolicies, ...invalidPolicies].map(({ name }) => name);
    expect(invalidPolicies.length).toBeGreaterThanOrEqual(140);
    expect(new Set(names).size).toBe(names.length);
  });

  it.each(validPolicies)('accepts: $name', ({ object }) => {
    expect(validateMasqPolicy(object)).toMatchObject({ ok: true });
  });

  it.each(invalidPolicies)('refuses: $name', ({ object, field, reason }) => {
    const faults = faultsOf(object);
    expect(faults).toHaveLength(1);
    expect(faults[0]?.field).toBe(field);
    expect(faults[0]?.reason).toContain(reason);
  });
});

describe('what is read', () => {
  it('has the defaults of the CRD', () => {
    expect(must(policy(minimal)).spec).toEqual({
      priority: 500,
      enforcementMode: 'Enforce',
      source: { ipPools: { natOutgoing: 'Any' } },
      rules: [{ name: 'rule', action: 'Preserve', portAllocation: 'FullyRandom' }],
      defaultAction: 'Continue',
      connectionPolicy: 'Keep',
    });
  });

  it('has every value as a number that prints canonically', () => {
    const { rules, source } = must(
      policy({
        source: { ipBlocks: [{ cidr: 'FD00:0::/16', except: ['fd00:1::/32'] }] },
        rules: [
          rule({
            ports: [{ protocol: 'TCP', port: 443 }, { protocol: 'ICMP' }],
            action: 'SNAT',
            snat: { addresses: ['2001:DB8::7', '198.51.100.7'] },
          }),
        ],
      }),
    ).spec;
    const [block] = source.ipBlocks ?? [];
    expect(block && [block.cidr, ...block.except].map(formatCidr)).toEqual(['fd00::/16', 'fd00:1::/32']);
    expect(rules[0]?.ports).toEqual([{ protocol: 'TCP', port: 443, endPort: 443 }, { protocol: 'ICMP' }]);
    const snat = rules[0]?.snat;
    const addresses = snat !== undefined && 'addresses' in snat ? snat.addresses : {};
    expect(addresses[4] && formatAddress(addresses[4])).toBe('198.51.100.7');
    expect(addresses[6] && formatAddress(addresses[6])).toBe('2001:db8::7');
  });

  it('names where an SNAT address comes from', () => {
    const snat = (addressFrom: unknown): unknown =>
      must(withRule({ action: 'SNAT', snat: { addressFrom } })).spec.rules[0]?.snat;
    expect(snat({ nodeAnnotation: 'example.com/ip' })).toEqual({ nodeAnnotation: 'example.com/ip' });
    expect(snat({ nodeAddressType: 'ExternalIP' })).toEqual({ nodeAddressType: 'ExternalIP' });
  });

  it('has generation and time of creation, the time in a form that orders as text', () => {
    const metadata = { name: 'a', generation: 7, creationTimestamp: '2026-03-01T01:00:00+01:00' };
    expect(must(policy(minimal, metadata))).toMatchObject({
      name: 'a',
      generation: 7,
      creationTimestamp: '2026-03-01T00:00:00.000Z',
    });
    expect(must(policy(minimal, { name: 'a', creationTimestamp: null }))).not.toHaveProperty(
      'creationTimestamp',
    );
  });

  it('warns of a block that its exceptions make empty', () => {
    const read = validateMasqPolicy(withCidr('10.0.0.0/8', ['10.0.0.0/8']));
    expect(read.warnings).toEqual([
      {
        field: 'spec.rules[0].to[0].ipBlock.except[0]',
        reason: '"10.0.0.0/8" is all of cidr, so that the block is empty',
      },
    ]);
  });
});

describe('faults', () => {
  it('are all told at once, of one rule and of many', () => {
    const faults = faultsOf(
      policy({
        priority: 5000,
        source: { ipBlocks: [{ cidr: '10.0.0.1/8' }, { cidr: '10.0.0.0/8', except: ['x', '11.0.0.0/8'] }] },
        rules: [
          rule({ action: 'SNAT', to: [{ scope: 'x' }, {}], extra: 1 }),
          rule({ action: 'Preserve', snat: {}, portRange: { start: 2, end: 1 } }),
        ],
      }),
    );
    expect(faults.map(({ field }) => field).sort()).toEqual(
      [
        'spec.priority',
        'spec.source.ipBlocks[0].cidr',
        'spec.source.ipBlocks[1].except[0]',
        'spec.source.ipBlocks[1].except[1]',
        'spec.rules[0].extra',
        'spec.rules[0].snat',
        'spec.rules[0].to[0].scope',
        'spec.rules[0].to[1]',
        'spec.rules[1].name',
        'spec.rules[1].portRange',
        'spec.rules[1].portRange.end',
        'spec.rules[1].snat',
        'spec.rules[1].snat',
      ].sort(),
    );
  });

  it.each([
    [{ apiVersion: 'natoutgoing.io/v1', metadata: { name: 'a' }, spec: minimal }, 'apiVersion'],
    [{ kind: 'MasqPlan', metadata: { name: 'a' }, spec: minimal }, 'kind'],
    [{ metadata: {}, spec: minimal }, 'metadata.name'],
    [{ metadata: { name: 'A' }, spec: minimal }, 'metadata.name'],
    [{ metadata: { name: 'a'.repeat(254) }, spec: minimal }, 'metadata.name'],
    [{ spec: minimal }, 'metadata'],
    [{ metadata: { name: 'a' }, spec: minimal, specs: {} }, 'specs'],
    [
      { metadata: { name: 'a', creationTimestamp: 'yesterday' }, spec: minimal },
      'metadata.creationTimestamp',
    ],
    [null, ''],
    [[], ''],
    ['text', ''],
  ])('name the field of the object itself, case %#', (object, field) => {
    expect(faultsOf(object).map(fault => fault.field)).toEqual([field]);
  });

  it('quote no more than a little of a huge value, and on one line', () => {
    const huge = 'x\n'.repeat(1_000_000);
    const faults = faultsOf(
      policy({ ...minimal, [huge]: 1, enforcementMode: huge, source: { ipBlocks: [{ cidr: huge }] } }),
    );
    expect(faults).toHaveLength(3);
    for (const { field, reason } of faults) {
      expect(field.length + reason.length).toBeLessThan(400);
      expect(field + reason).not.toContain('\n');
    }
  });

  it('do not let a message turn the terminal around', () => {
    const [fault] = faultsOf(withRule({ action: '\u001b[31m\u202e\u0085' }));
    expect(fault?.reason).toContain('"\\u001b[31m\\u202e\\u0085" is not one of');
  });

  it('find members by the names of Object.prototype strange, and no others there', () => {
    const object: unknown = JSON.parse(
      '{"metadata":{"name":"a"},"spec":{"__proto__":{"source":{}},"constructor":1}}',
    );
    expect(faultsOf(object).map(({ field }) => field)).toEqual([
      'spec.__proto__',
      'spec.constructor',
      'spec.source',
      'spec.rules',
    ]);
  });

  it('do not overflow on deep nesting', () => {
    const deep: unknown = JSON.parse(`${'['.repeat(50_000)}${']'.repeat(50_000)}`);
    expect(faultsOf(withRule({ to: deep }))[0]?.reason).toContain('is not an object');
  });
});

/** Any value, with the field names of a policy among its keys, so that it gets past the first check. */
const json = fc.letrec(tie => ({
  value: fc.oneof(
    { depthSize: 'small' },
    fc.jsonValue(),
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(
      fc.constantFrom(
        'to',
        'ipBlock',
        'cidr',
        'except',
        'ports',
        'snat',
        'names',
        '__proto__',
        'toString',
        'a b',
      ),
      tie('value'),
      { noNullPrototype: true },
    ),
  ),
})).value;

describe('any JSON', () => {
  it('is judged without throwing, and what is refused has a fault', () => {
    fc.assert(
      fc.property(json, json, (source, inner) => {
        for (const object of [
          source,
          policy(inner),
          policy({ source, rules: [inner, rule({ to: inner })] }),
        ]) {
          const read = validateMasqPolicy(object);
          expect(read.ok || read.faults.length > 0).toBe(true);
        }
      }),
      { numRuns: 300 },
    );
  });

  it('put in the place of any member of a good policy is accepted or refused at that member or around it', () => {
    const places = validPolicies.flatMap(({ object }) => pathsOf(object).map(path => ({ object, path })));
    fc.assert(
      fc.property(fc.constantFrom(...places), fc.jsonValue(), ({ object, path }, value) => {
        const read = validateMasqPolicy(replaced(object, path, value));
        if (read.ok) return;
        const parent = path.slice(0, -1).reduce(fieldOf, '');
        for (const { field } of read.faults) {
          expect(field.startsWith(parent) || parent.startsWith(field)).toBe(true);
        }
      }),
      { numRuns: 2000 },
    );
  });
});

const fieldOf = (field: string, key: string): string =>
  /^\d+$/.test(key) ? `${field}[${key}]` : member(field, key);

function pathsOf(value: unknown, path: readonly string[] = []): readonly (readonly string[])[] {
  if (typeof value !== 'object' || value === null) return [path];
  const inner = Object.entries(value).flatMap(([key, member]) => pathsOf(member, [...path, key]));
  return path.length === 0 ? inner : [path, ...inner];
}

function replaced(value: unknown, [key, ...rest]: readonly string[], by: unknown): unknown {
  if (key === undefined) return by;
  if (Array.isArray(value))
    return value.map((item, i) => (String(i) === key ? replaced(item, rest, by) : item));
  const object = value as Readonly<Record<string, unknown>>;
  return { ...object, [key]: replaced(object[key], rest, by) };
}
