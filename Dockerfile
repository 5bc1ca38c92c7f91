# docker build -t attnknn .
# docker run --rm -v "$PWD:/data" attnknn fit train.csv --target label -o model
# docker compose up    # serves ./model on port 8000; see compose.yaml
FROM python:3.12-slim

WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY attnknn ./attnknn
RUN pip install --no-cache-dir -c constraints.txt ".[faiss,plots,serve]" \
    && rm -rf /src

RUN useradd --create-home attnknn
USER attnknn
WORKDIR /data
EXPOSE 8000
ENTRYPOINT ["attnknn"]
CMD ["--help"]
