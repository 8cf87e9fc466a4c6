// The names of our API that operator, appliers and commands share; crds/ has the kinds.

export const OWN_GROUP = 'natoutgoing.io';
export const OWN_VERSION = 'v1alpha1';
export const API_VERSION = `${OWN_GROUP}/${OWN_VERSION}`;

/** Paths of the collections. */
export const MASQ_NODES = `/apis/${API_VERSION}/masqnodes`;
export const MASQ_PLANS = `/apis/${API_VERSION}/masqplans`;

/** All parts of a plan carry it, with the plan's name: an applier watches by it. */
export const PLAN_LABEL = `${OWN_GROUP}/plan`;

/**
 * On a MasqNode, with any value: its node shall hold nothing of ours. An annotation, since the spec is the operator's
 * alone, and whoever removes the product is not the operator.
 */
export const REMOVE_ANNOTATION = `${OWN_GROUP}/remove`;
/** Reason of a node's condition Ready: it holds nothing of ours any more, as the annotation asks. */
export const REMOVED = 'Removed';
/** Of the Lease under which plans are written. */
export const LEASE_NAME = 'natoutgoing-operator';

/** Whether these annotations ask for the removal. */
export const asksRemoval = (annotations: unknown): boolean =>
  typeof annotations === 'object' && annotations !== null && Object.hasOwn(annotations, REMOVE_ANNOTATION);
