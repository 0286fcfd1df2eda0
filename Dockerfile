# dibs serve in a container. Kernels are compiled when the image is built (dibs warm), for the kind of processor that
# builds it: on another kind they are compiled again at the first start, which takes a minute.
FROM python:3.11-slim
WORKDIR /app
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src src
ENV DIBS_CACHE=/var/cache/dibs PYTHONUNBUFFERED=1
RUN pip install --no-cache-dir --constraint constraints.txt '.[serve,fast]' \
    && useradd --create-home --uid 1000 dibs \
    && mkdir -p /data /var/cache/dibs \
    && chown dibs /data /var/cache/dibs
USER dibs
RUN dibs warm
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --start-period=60s CMD \
    ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/ready', timeout=5)"]
ENTRYPOINT ["dibs"]
CMD ["serve", "/data/searches", "--host", "0.0.0.0"]
