# SPDX-License-Identifier: Apache-2.0
#
# docker build -t varve . && docker run --rm -v "$PWD:/work" -w /work varve report run.db
# To record in it, put the program there: FROM varve, or copy the Debian package into an image of your own.

FROM debian:12 AS build
COPY . /varve
WORKDIR /varve
RUN ./dev build package
RUN apt-get install -y --no-install-recommends file && cpack --config build-package/CPackConfig.cmake -B build-package

FROM debian:12
COPY --from=build /varve/build-package/*.deb /tmp/
RUN apt-get update && apt-get install -y --no-install-recommends /tmp/*.deb && rm -rf /tmp/*.deb /var/lib/apt/lists/*
ENTRYPOINT ["varve"]
