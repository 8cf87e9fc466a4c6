# Everything a newcomer needs: `make demo` and `make test` set up all that they need by themselves.
.PHONY: demo test check build tools bench bench-control-plane clean

# npm keeps its own record of what it installed; installing again is only needed when the lock file is newer.
node_modules/.package-lock.json: package.json package-lock.json
	npm ci --no-audit --no-fund --loglevel=error
	@touch $@

tools:
	@scripts/install-tools.sh

build: node_modules/.package-lock.json
	@npm run --silent build

## Packets from pods to the outside through real rules, in namespaces of their own.
demo: tools build
	@node dist/natoutgoing.js demo

## Types, lint, format, generated files.
check: node_modules/.package-lock.json
	npm run --silent types
	npm run --silent lint
	npm run --silent format:check
	npm run --silent generate:check

## Every test, on the real kernel and a real API server.
test: tools build
	npx vitest run --reporter=default --reporter=json --outputFile.json=.cache/test-report.json

## Data plane benchmarks: ratios against what users would pick instead, as a table and in .cache/bench.json.
bench: tools build
	node dist/bench.js

## Control plane benchmarks on a real API server: latency, memory, and 5,000 simulated nodes.
bench-control-plane: tools build
	npx vitest run --config vitest.bench.config.ts

clean:
	rm -rf dist node_modules .cache coverage
