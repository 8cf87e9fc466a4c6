# Everything a newcomer needs: `make demo` and `make test` set up all that they need by themselves.
.PHONY: demo test fuzz soak e2e image check build tools test-tools bench bench-control-plane clean

# npm keeps its own record of what it installed; installing again is only needed when the lock file is newer.
node_modules/.package-lock.json: package.json package-lock.json
	npm ci --no-audit --no-fund --loglevel=error
	@touch $@

tools:
	@scripts/install-tools.sh

test-tools:
	@scripts/install-tools.sh test

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

## Every test: pure code, the real kernel, a real API server, real nodes.
test: test-tools build
	npx vitest run --reporter=default --reporter=json --outputFile.json=.cache/test-report.json

## Hostile plans and objects for minutes; what is found is printed with its seed.
fuzz: node_modules/.package-lock.json
	FUZZ_RUNS=$${FUZZ_RUNS:-100000} npx vitest run --project unit test/unit/hostile.test.ts

## Twenty minutes of changes, damage and repairs beside steady traffic; prints how memory grows.
soak: test-tools build
	SOAK_SECONDS=$${SOAK_SECONDS:-1200} npx vitest run --project cluster test/cluster/soak.test.ts

## The release on real nodes: our image and chart, by Helm. Built once, then three minutes.
e2e: test-tools build
	npx vitest run --project e2e

## The image, by docker.
image:
	docker build -t natoutgoing --build-arg COMMIT=$$(git rev-parse --short HEAD) .

## Data plane benchmarks: ratios against what users would pick instead, as a table and in .cache/bench.json.
bench: tools build
	node dist/bench.js

## Control plane benchmarks on a real API server: latency, memory, and 5,000 simulated nodes.
bench-control-plane: tools build
	npx vitest run --config vitest.bench.config.ts

clean:
	rm -rf dist node_modules .cache coverage
