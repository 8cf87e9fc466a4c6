// Builds dist/: the command, and the benchmark.
import { bundle } from './bundle.mjs';

await bundle('src/main.ts', 'dist/natoutgoing.js');
await bundle('test/bench/main.ts', 'dist/bench.js');
