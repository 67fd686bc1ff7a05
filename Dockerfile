# Images of onejob: `--target serve` for a server, `--target controller` (the default) for the
# controller of a cluster, see docs/how-to/cluster.md.
ARG PYTHON=python:3.12-slim

FROM ${PYTHON} AS build
WORKDIR /source
# Only versions with the hashes of the lock files are installed, also of what builds the package.
COPY requirements requirements
RUN python -m venv /build \
 && /build/bin/pip install --no-cache-dir --require-hashes --requirement requirements/build.txt \
 && python -m venv /onejob \
 && /onejob/bin/pip install --no-cache-dir --require-hashes --requirement requirements/service.txt
COPY pyproject.toml build_schema.py README.md LICENSE NOTICE ./
COPY src src
RUN /build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /onejob/bin/pip install --no-cache-dir --no-deps --no-index /wheels/*.whl \
 && mkdir -p /state/onejob && chmod 700 /state/onejob

FROM ${PYTHON} AS onejob
COPY --from=build /onejob /onejob
# The root of the container's filesystem is read-only.
ENV PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT ["/onejob/bin/onejob"]

# Pods are processes of this container. The state and the kubeconfig are in /state/onejob.
FROM onejob AS serve
COPY --from=build --chown=65532:65532 /state /state
ENV XDG_STATE_HOME=/state
VOLUME /state
EXPOSE 7443
CMD ["serve", "--listen", "0.0.0.0:7443"]

FROM onejob AS controller
CMD ["controller"]
