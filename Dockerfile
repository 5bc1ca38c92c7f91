# docker build -t attnknn .
# docker run --rm -v "$PWD:/data" attnknn fit train.csv --target label -o model
FROM python:3.12-slim

WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY attnknn ./attnknn
RUN pip install --no-cache-dir -c constraints.txt ".[faiss,plots]" \
    && rm -rf /src

RUN useradd --create-home attnknn
USER attnknn
WORKDIR /data
ENTRYPOINT ["attnknn"]
CMD ["--help"]
