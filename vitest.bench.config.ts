import { defineConfig } from 'vitest/config';

// Benchmarks that need a cluster: run by `make bench-control-plane`, never as tests.
export default defineConfig({
  test: {
    include: ['test/bench/control-plane/*.bench.ts'],
    environment: 'node',
    fileParallelism: false,
    testTimeout: 900_000,
    hookTimeout: 900_000,
    reporters: ['default'],
    disableConsoleIntercept: true,
  },
});
