# `onejob controller` for a cluster: see docs/how-to/cluster.md.
ARG PYTHON=python:3.12-slim

FROM ${PYTHON} AS build
WORKDIR /source
COPY pyproject.toml build_schema.py README.md LICENSE NOTICE ./
COPY src src
RUN python -m venv /onejob && /onejob/bin/pip install --no-cache-dir .

FROM ${PYTHON}
COPY --from=build /onejob /onejob
# The root of the container's filesystem is read-only.
ENV PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT ["/onejob/bin/onejob"]
CMD ["controller"]
