// What the planner has to say about objects that it could not use as written. Problems are data: one bad object never
// stops the others.
export interface Problem {
  /** `error`: a part of the object has no effect. `warning`: it has, but perhaps not the one that was meant. */
  readonly severity: 'error' | 'warning';
  readonly kind: 'IPPool' | 'MasqPolicy' | 'Node' | 'GlobalNetworkSet' | 'FelixConfiguration';
  readonly name: string;
  /** Path in the object, such as spec.rules[2].to[0]; empty for the whole object. */
  readonly field: string;
  /** CamelCase, as a condition's reason. */
  readonly reason: string;
  readonly message: string;
}
