// No write without the right to write: asked at the last moment before it is sent.
import { type Api, ApiError } from './api.ts';

/**
 * As `api`, but a request that is not a GET is refused (ApiError) when `mayWrite` says no: now, and again when there is
 * a connection and the first byte would leave, which may be much later (a stopped process, a slow connection).
 */
export const fenced = (api: Api, mayWrite: () => boolean): Api => ({
  async request(asked, signal) {
    if (asked.method === 'GET') return api.request(asked, signal);
    const guard = (): void => {
      asked.guard?.();
      if (mayWrite()) return;
      throw new ApiError(`${asked.method} ${asked.path.split('?')[0]}: not sent, another one leads now`);
    };
    guard();
    return api.request({ ...asked, guard }, signal);
  },
  watch: (path, options, signal) => api.watch(path, options, signal),
});
