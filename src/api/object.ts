// What all kinds have: apiVersion, kind and metadata.
import {
  defaulted,
  integer,
  type Member,
  nullable,
  object,
  oneOf,
  optional,
  required,
  stringMap,
} from './fields.ts';
import { quote, type Reader, refuse } from './report.ts';
import { objectName } from './values.ts';

const RFC3339 = /^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$/;

/** A point in time, printed again in one form, so that times can be ordered as text. */
const timestamp: Reader<string> = (value, field, report) => {
  const time = typeof value === 'string' && RFC3339.test(value) ? Date.parse(value) : Number.NaN;
  return Number.isNaN(time)
    ? refuse(report, field, `${quote(value)} is not a time such as 2026-01-31T12:00:00Z`)
    : new Date(time).toISOString();
};

/** The part of metadata that somebody here looks at; kubectl and others write nulls into it. */
export const metadata = object(
  {
    name: required(objectName),
    labels: defaulted(stringMap, {}),
    annotations: defaulted(stringMap, {}),
    generation: nullable(integer(0, Number.MAX_SAFE_INTEGER)),
    creationTimestamp: nullable(timestamp),
  },
  'ignore',
);

/**
 * apiVersion and kind. Items of a list may lack them; where they are there they must be the right ones, or one kind
 * is read as another.
 */
export const identity = (
  kind: string,
  ...apiVersions: readonly string[]
): { readonly apiVersion: Member<string, false>; readonly kind: Member<string, false> } => ({
  apiVersion: optional(oneOf(...apiVersions)),
  kind: optional(oneOf(kind)),
});
