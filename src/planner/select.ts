// Which objects a selection means: label selectors as Kubernetes evaluates them, and lists of names.
import type { LabelRequirement, LabelSelector } from '../api/model.ts';

type Labels = Readonly<Record<string, string>>;

/** Whether the labels match the selector; an absent or empty selector matches everything (metav1.LabelSelector). */
export function matchesSelector(selector: LabelSelector | undefined, labels: Labels): boolean {
  if (selector === undefined) return true;
  for (const [key, value] of Object.entries(selector.matchLabels ?? {})) {
    if (labelOf(labels, key) !== value) return false;
  }
  return (selector.matchExpressions ?? []).every(requirement =>
    meets(requirement, labelOf(labels, requirement.key)),
  );
}

function meets(requirement: LabelRequirement, value: string | undefined): boolean {
  const values = requirement.values ?? [];
  switch (requirement.operator) {
    case 'In':
      return value !== undefined && values.includes(value);
    case 'NotIn':
      return value === undefined || !values.includes(value);
    case 'Exists':
      return value !== undefined;
    case 'DoesNotExist':
      return value === undefined;
  }
}

/** Labels come from other people's objects: a key such as `constructor` must not find what every object has. */
const labelOf = (labels: Labels, key: string): string | undefined =>
  Object.hasOwn(labels, key) ? labels[key] : undefined;

/** Whether a named, labelled object is meant: both parts must allow it, and an absent part allows all. */
export const isSelected = (
  selection: { readonly names?: readonly string[]; readonly selector?: LabelSelector },
  object: { readonly name: string; readonly labels: Labels },
): boolean =>
  (selection.names === undefined || selection.names.includes(object.name)) &&
  matchesSelector(selection.selector, object.labels);

/** A text that is equal for selectors that mean the same by the same words, whatever their order. */
export function selectorKey(selector: LabelSelector | undefined): string {
  if (selector === undefined) return '';
  const labels = Object.entries(selector.matchLabels ?? {}).map(([key, value]) => [key, 'In', [value]]);
  const expressions = (selector.matchExpressions ?? []).map(e => [
    e.key,
    e.operator,
    [...(e.values ?? [])].sort(),
  ]);
  const parts = [...labels, ...expressions].map(part => JSON.stringify(part)).sort();
  return parts.length === 0 ? '' : parts.join();
}
