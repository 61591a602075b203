FROM python:3.11-slim-bookworm AS build

# what of pyproject.toml's optional parts the image has: names separated by blanks
ARG EXTRAS="s3 zstd"

# requirements before sources: an edit of the code does not install them again
WORKDIR /src
COPY pyproject.toml ./
RUN python -m venv --without-pip /opt/acccocoa \
 && EXTRAS="$EXTRAS" python -c 'import os, tomllib; \
project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
extras = [project["optional-dependencies"][extra] for extra in os.environ["EXTRAS"].split()]; \
print(*project["dependencies"], *sum(extras, []), sep="\n")' > requirements.txt \
 && pip --python /opt/acccocoa/bin/python install --no-cache-dir -r requirements.txt

COPY README.md ./
COPY acccocoa acccocoa
COPY coordinator coordinator
COPY worker worker
RUN pip --python /opt/acccocoa/bin/python install --no-cache-dir --no-deps .


FROM python:3.11-slim-bookworm

RUN useradd --uid 1000 --user-group --no-create-home --home-dir /tmp --shell /usr/sbin/nologin acccocoa \
 && install -d -o acccocoa -g acccocoa /data /models /shards /state /var/cache/acccocoa
COPY --from=build /opt/acccocoa /opt/acccocoa

# numba keeps compiled kernels in the first of these that it can write to; a read-only container has /tmp
ENV PATH=/opt/acccocoa/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/var/cache/acccocoa \
    XDG_CACHE_HOME=/tmp/.cache
USER acccocoa
WORKDIR /data

# compile every kernel now: they are loaded from the cache on processors like the one that built the image
RUN set -e; cd "$(mktemp -d)"; \
    for like in covtype epsilon rcv1; do \
        acccocoa-coordinator generate --like $like --n 200 --d 500 --out data; \
    done; \
    for dtype in float32 float64; do \
        acccocoa-coordinator train data --local 1 --dtype $dtype --tol 0.5 --quiet --model model; \
    done; \
    acccocoa-coordinator predict --model model data --out predictions; \
    rm -r "$PWD"

EXPOSE 50051
CMD ["acccocoa-coordinator", "--help"]
