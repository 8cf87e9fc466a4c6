// Short names for long things. The same text gives the same name; two texts practically never share one.
import { createHash } from 'node:crypto';

export const shortHash = (text: string, length = 12): string =>
  createHash('sha256').update(text).digest('hex').slice(0, length);
