// A signal that aborts with its parent, or when a time has passed. Released by hand, since signals that are combined by
// AbortSignal.any stay known to a parent that lives as long as the process.
export interface LimitedSignal {
  readonly signal: AbortSignal;
  /** Whether the time has passed. */
  expired(): boolean;
  /** Begins the time anew. */
  restart(): void;
  /** Holds the clock until the next restart. */
  pause(): void;
  /** To be called when the work is done: ends the timer and lets go of the parent. */
  release(): void;
}

export function limitedSignal(parent: AbortSignal | undefined, limitMs: number): LimitedSignal {
  const controller = new AbortController();
  let expired = false;
  const expire = (): void => {
    expired = true;
    controller.abort(new Error(`not done within ${limitMs} ms`));
  };
  const follow = (): void => controller.abort(parent?.reason);
  let timer = setTimeout(expire, limitMs);
  if (parent?.aborted === true) follow();
  else parent?.addEventListener('abort', follow, { once: true });
  return {
    signal: controller.signal,
    expired: () => expired,
    restart() {
      clearTimeout(timer);
      timer = setTimeout(expire, limitMs);
    },
    pause: () => clearTimeout(timer),
    release() {
      clearTimeout(timer);
      parent?.removeEventListener('abort', follow);
    },
  };
}
