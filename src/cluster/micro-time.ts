/** The API's MicroTime, which wants six digits. */
export const microTime = (date: Date): string => date.toISOString().replace('Z', '000Z');
