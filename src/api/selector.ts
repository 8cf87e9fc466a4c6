// metav1.LabelSelector, and the selections by name and label that are made with it.
import { has, isObject, list, object, oneOf, optional, required, set } from './fields.ts';
import type { LabelRequirement, LabelSelector } from './model.ts';
import { member, quote, type Reader, refuse } from './report.ts';
import { isLabelKey, labelKey, labelValue, objectName } from './values.ts';

/** The limits of the CRD. */
const MAX_LABELS = 64;
const MAX_REQUIREMENTS = 64;
const MAX_VALUES = 64;
const MAX_NAMES = 64;

/** Labels that all must be there. No label at all is Kubernetes' way to say "every object". */
const matchLabels: Reader<Readonly<Record<string, string>>> = (value, field, report) => {
  if (!isObject(value)) return refuse(report, field, `${quote(value)} is not an object`);
  const entries = Object.entries(value);
  if (entries.length > MAX_LABELS) {
    return refuse(report, field, `has ${entries.length} labels; at most ${MAX_LABELS} are allowed`);
  }
  const read: [string, string][] = [];
  for (const [key, text] of entries) {
    const at = member(field, key);
    const found = labelValue(text, at, report);
    if (!isLabelKey(key))
      refuse(report, at, `${quote(key)} is not a label key such as zone or example.com/zone`);
    else if (found !== undefined) read.push([key, found]);
  }
  return read.length === entries.length ? Object.fromEntries(read) : undefined;
};

const requirement: Reader<LabelRequirement> = object(
  {
    key: required(labelKey),
    operator: required(oneOf('In', 'NotIn', 'Exists', 'DoesNotExist')),
    values: optional(list(labelValue, MAX_VALUES)),
  },
  'refuse',
  ({ operator }, raw, field, report) => {
    if (operator === undefined) return;
    const needed = operator === 'In' || operator === 'NotIn';
    if (needed === has(raw, 'values')) return;
    const fault = needed ? 'is required' : 'is not allowed';
    refuse(report, `${field}.values`, `${fault} with operator ${operator}`);
  },
);

export const labelSelector: Reader<LabelSelector> = object(
  {
    matchLabels: optional(matchLabels),
    matchExpressions: optional(list(requirement, MAX_REQUIREMENTS)),
  },
  'refuse',
);

/** Names of objects, each once. */
export const names = set(objectName, MAX_NAMES);
