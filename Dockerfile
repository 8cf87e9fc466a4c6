# The image of operator, applier and commands. It holds Node, the tools that rules are made with, what these load, and the
# program: no shell, no package manager. Any base with Node in PATH and Debian's packages will do; it should be as new as
# trixie, since an older ipset cannot read the sets of a newer kernel.
#
#   docker build -t natoutgoing --build-arg VERSION=0.1.0 --build-arg COMMIT=$(git rev-parse HEAD) .
ARG BASE=node:24-trixie-slim
# build: by npm, here. prebuilt: what `npm run build` left in dist/.
ARG BUNDLE=build

FROM ${BASE} AS build
WORKDIR /src
COPY package.json package-lock.json ./
# A registry of one's own is told by an .npmrc, which stays out of the image: --secret id=npmrc,src=$HOME/.npmrc
RUN --mount=type=secret,id=npmrc,target=/root/.npmrc npm ci --no-audit --no-fund
COPY scripts scripts
COPY src src
ARG COMMIT=
RUN NATOUTGOING_COMMIT=${COMMIT} node scripts/build.mjs --program

FROM scratch AS prebuilt
COPY dist /src/dist

FROM ${BUNDLE} AS bundle

FROM ${BASE} AS root
RUN apt-get update \
 && apt-get install -y --no-install-recommends iptables ipset nftables conntrack iproute2 ca-certificates \
 && rm -rf /var/lib/apt/lists/*
COPY scripts/image-root.sh /
RUN sh /image-root.sh /root-of-image
COPY --from=bundle /src/dist /root-of-image/usr/lib/natoutgoing
RUN ln -s ../lib/natoutgoing/natoutgoing.js /root-of-image/usr/bin/natoutgoing

FROM scratch
ARG VERSION=0.1.0
ARG COMMIT=
LABEL org.opencontainers.image.title="natoutgoing" \
      org.opencontainers.image.description="Decides which pod traffic leaves a node with the node's, a chosen or the pod's own address, on clusters that use Calico" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=root /root-of-image /
ENV PATH=/usr/sbin:/usr/bin NODE_ENV=production
# Without rights by default; the applier's pod asks for root and two capabilities.
USER 65532:65532
ENTRYPOINT ["natoutgoing"]
