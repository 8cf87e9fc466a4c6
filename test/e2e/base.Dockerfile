# Stands in for node:24-trixie-slim where no registry of images can be asked: Debian as debootstrap makes it, and Node.
FROM scratch
COPY root /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
