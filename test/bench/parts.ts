// The parts of the benchmark by name.
import { check } from './check.ts';
import { exemptions } from './exemptions.ts';
import type { Part } from './options.ts';
import { plan } from './plan.ts';
import { policies } from './policies.ts';
import type { PartName } from './result.ts';
import { firstApply, oneMore } from './sets.ts';

export const PARTS: Readonly<Record<PartName, Part>> = {
  exemptions,
  policies,
  'one-more': oneMore,
  'first-apply': firstApply,
  check,
  plan,
};
