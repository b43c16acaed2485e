# kvbench on a GPU box: vLLM's own image, with LMCache and kvbench (engine included) in its Python.
#
#   docker build -t kvbench .
#   docker run --rm --gpus all --ipc=host -v /models:/models:ro -v "$PWD/runs:/work/runs" kvbench \
#     run --runner vllm --model /models/NAME --tier none,cpu
#
# It was not built here, where there is neither Docker nor a GPU. What it installs was resolved together with vLLM (scripts/vllm-constraints).
ARG VLLM_VERSION=0.32.0
FROM vllm/vllm-openai:v${VLLM_VERSION}

WORKDIR /opt/kvbench
COPY pyproject.toml README.md LICENSE ./
COPY requirements/vllm-constraints.txt requirements/
COPY kvbench kvbench
RUN uv pip install --system --no-cache -c requirements/vllm-constraints.txt '.[engine,vllm]' \
    && python3 -c 'import lmcache, vllm' \
    && kvbench --version

# Models are folders that are mounted: nothing is downloaded, and no server reports its use.
ENV HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 LMCACHE_TRACK_USAGE=false
WORKDIR /work
ENTRYPOINT ["kvbench"]
CMD ["doctor"]
