// No write without the right to write: asked at the last moment before it is sent.
import { type Api, ApiError } from './api.ts';

/** As `api`, but a request that is not a GET is refused (ApiError) when `mayWrite` says no at that moment. */
export const fenced = (api: Api, mayWrite: () => boolean): Api => ({
  async request(asked, signal) {
    if (asked.method !== 'GET' && !mayWrite()) {
      throw new ApiError(`${asked.method} ${asked.path.split('?')[0]}: not sent, another one leads now`);
    }
    return api.request(asked, signal);
  },
  watch: (path, options, signal) => api.watch(path, options, signal),
});
