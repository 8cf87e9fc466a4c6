// What the driver needs of a logger; pino's loggers have this shape.

export interface KernelLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
}

export const silentLog: KernelLog = { info: () => {}, warn: () => {} };
